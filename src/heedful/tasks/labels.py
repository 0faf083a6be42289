"""What tasks with labels share: labels that are collected from the data, and labels as outputs for analyses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from heedful.config.base import Problem, refuse
from heedful.errors import ConfigError
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.base import TaskConfig
from heedful.tasks.encoded_example import EncodedExample, Outputs

MIN_LABELS = 2


class CollectedLabelsConfig(TaskConfig):
    """Base class of tasks whose labels may be collected from the training data."""

    labels: tuple[str, ...] | Literal["auto"] = "auto"
    """The labels as in the data; auto: those of the training data."""

    def model_post_init(self, context: Any) -> None:
        if self.labels != "auto" and (len(set(self.labels)) != len(self.labels) or len(self.labels) < MIN_LABELS):
            refuse([Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ")])

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels; as many as there are at least, as long as they are not collected."""
        return ("",) * MIN_LABELS if self.labels == "auto" else self.labels


def label_output(names: Sequence[str], label: str, step: Tensor, logits: Callable[[Any, Tensor], Tensor]) -> Outputs:
    """One label of these names as the output of an example; step (1,): the position that its state is read from."""
    ids = torch.tensor([names.index(label)], device=step.device)
    return Outputs(ids, [label], step, logits, lambda chosen: [names[i] for i in chosen])


def refuse_search(config: SearchConfig | None) -> None:
    if config is not None:
        raise ConfigError("search options have no effect on a classifier, which decodes no text", hint="remove them")


def decode_choices(model: Any, example: EncodedExample, prefix: Sequence[int]) -> tuple[list[int], float]:
    """The most probable choice of every output of a classifier, and the sum of their log-probabilities."""
    if prefix:
        raise ConfigError("a classifier decodes no text, so no token can be forced", hint="compare the labels' probabilities")
    with inference_context(model):
        logs = example.logits(model, example.forward(model).hidden)[0].float().log_softmax(-1)  # (outputs, choices)
    return logs.argmax(-1).tolist(), float(logs.amax(-1).sum())
