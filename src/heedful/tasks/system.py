"""A model or an ensemble with its tokenizers: what prediction, evaluation and inspection compute with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from heedful.errors import CheckpointError, ConfigError, DivergedError, HeedfulError
from heedful.nn.model import SequenceModel
from heedful.search import Engines
from heedful.tasks.batches import collate
from heedful.text.tokenizer import Tokenizer
from heedful.training.ranks import Ranks

Result = TypeVar("Result")


@dataclass(frozen=True)
class System:
    """A model or an ensemble, with its tokenizers."""

    models: Sequence[SequenceModel]  # several: an ensemble
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    device: torch.device
    max_length: int = 256  # maximum tokens of a source
    engines: Engines = field(default_factory=dict, compare=False, repr=False)  # search engines with captured CUDA graphs
    checkpoint: Path | None = None  # that the weights were loaded from; None: the model is being trained
    ranks: Ranks = field(default=Ranks(), compare=False, repr=False)  # the processes of the run that validate together

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("a system was given no model; expected at least one")

    @property
    def batch_tokens(self) -> int:
        """Tokens to decode at a time: enough to use the whole device, no more than fit into its memory."""
        if self.device.type != "cuda":
            return 2**13
        return 2**15 * max(1, torch.cuda.get_device_properties(self.device).total_memory >> 34)  # for every 16 GiB

    @property
    def scored_tokens(self) -> int:
        """Tokens to score at a time: logits over the vocabulary take far more memory than decoder states."""
        return min(self.batch_tokens, 2**14)

    def map_batches(
        self, function: Callable[[list[int]], Iterable[Result]], lengths: Sequence[int], budget: int
    ) -> list[Result]:
        """The results for items of these lengths, in their order. function: of the indices of a batch, the longest first, to a
        result for each; a batch has as many items as fit into `budget` tokens. The batches are spread over the ranks."""
        order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
        batches = list(batches_of(order, lambda i: lengths[i], budget))
        found: dict[int, Result] = {}
        for chosen, results in zip(batches, self.ranks.map(lambda batch: list(function(batch)), batches), strict=True):
            found.update(zip(chosen, results, strict=True))
        return [found[i] for i in range(len(lengths))]

    def nonfinite_error(self, place: str) -> HeedfulError:
        """The error for scores that are NaN or infinite; place: the line, token or example."""
        what = f"the model's scores are not finite at {place}"
        if self.checkpoint is None:
            return DivergedError(
                f"{what}: training diverged", hint="lower training.schedule.learning_rate, or lengthen training.schedule.warmup"
            )
        where = self.checkpoint if len(self.models) == 1 else f"{self.checkpoint} or of another run of the ensemble"
        return CheckpointError(
            f"{what}; the weights of {where} are damaged, or training diverged",
            hint="choose another --checkpoint, or train again",
        )


def batches_of(order: Sequence[int], length: Callable[[int], int], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices, given longest first: as many as fit into `budget` tokens when padded, at least one."""
    start = 0
    while start < len(order):
        count = max(1, budget // length(order[start]))
        yield list(order[start : start + count])
        start += count


def collate_one(system: System, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """The source and decoder input of one pair of ids, (1, source time) and (1, target time), on the system's device."""
    batch = collate([source], [target], system.source_tokenizer.specials, system.target_tokenizer.specials)
    return batch.source.to(system.device), batch.target_in.to(system.device)
