"""Masked language modeling: predict tokens that are hidden, from the tokens on both sides (Devlin et al., 2019).

    loss = cross-entropy of the chosen tokens  (+ cross-entropy of the next-sentence label, as for one token)

Logits are computed at the chosen positions only. Every epoch cuts the text and chooses tokens anew, unless `static`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.corpus_text import TextConfig
from heedful.data.mixing import describe_mixture
from heedful.data.text_blocks import BlockShape, JoinedText
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss, cross_entropy
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.language.data import TextSplits, format_examples, mixture_of
from heedful.tasks.masked.config import MaskedConfig
from heedful.tasks.masked.data import MaskedData
from heedful.tasks.masked.evaluate import MaskedBatch, evaluate_text, masked_batch
from heedful.tasks.masked.masking import make_masking
from heedful.tasks.masked.model import MaskedModel
from heedful.tasks.masked.predictor import MaskFiller
from heedful.tasks.masked.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective

CUTS, MASKS = 2**40, 2**41  # added to the epoch, so that cuts, masks and order have keys of their own


class MaskedTask:
    def __init__(self, run: RunConfig, texts: TextSplits, system: System) -> None:
        self.config: MaskedConfig = run.task
        self.data: TextConfig = run.data
        self.seed, self.text_data = run.seed, MaskedData(run)
        self.texts, self.system = texts, system
        self.masking = make_masking(self.config, system.target_tokenizer)
        self.train = JoinedText([text.ids for text in texts.train])
        self.shape = BlockShape(self.data.block - 1, self.data.block - 1)  # one token of a block is [CLS]
        self.mixture = mixture_of(self.data, self.train, self.shape)
        self.sequences = self.text_data.sequences(self.train, system.target_tokenizer.specials)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.texts.train, self.plan(0)
        return {
            "lines": sum(text.lines for text in train),
            "characters": sum(text.characters for text in train),
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": sum(len(batch) for batch in plan) * self.data.block,
        }

    def describe(self) -> str:
        sizes, mixed = self.statistics(), self.mixture.counts() if self.mixture else []
        return (
            f"{counted(sum(self.train.sizes), 'tokens')} of {counted(sizes['characters'], 'characters')} in "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch, "
            f"{counted(len(self.texts.valid.ids), 'validation tokens')}{describe_mixture(mixed, 'blocks')}"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The sequences of each batch: a pure function of the seed and the epoch. All batches have the same shape; the few
        sequences that are left over differ in every epoch."""
        if self.mixture is None:
            sequences = self.sequences.plan(np.random.Generator(np.random.Philox(key=self.key(CUTS, epoch))))
        else:
            sequences = self.mixture.draw(seed=self.seed, epoch=epoch, static=self.config.static)
        np.random.Generator(np.random.Philox(key=[self.seed, epoch])).shuffle(sequences)
        rows = min(self.data.batch, len(sequences))
        return [sequences[at : at + rows] for at in range(0, len(sequences) - rows + 1, rows)]

    def key(self, purpose: int, epoch: int) -> tuple[int, int]:
        """The key of random numbers; static: the same in every epoch."""
        return self.seed, purpose + (0 if self.config.static else epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        device, ahead = self.system.device, self.data.prefetch
        return stream_batches(self.plan, self.batch, StreamPosition(epoch, cursor), device=device, ahead=ahead)

    def batch(self, chosen: NDArray[np.int64], epoch: int) -> MaskedBatch:
        return masked_batch(self.sequences.rows(chosen), self.key(MASKS, epoch), self.masking)

    def count(self, batch: MaskedBatch) -> int:
        return int((batch.targets != self.masking.pad).sum())

    def split(self, batch: MaskedBatch, parts: int) -> Sequence[MaskedBatch]:
        return [batch.rows(int(cut[0]), int(cut[-1]) + 1) for cut in torch.arange(len(batch.tokens)).chunk(parts)]

    def loss(self, model: MaskedModel, batch: MaskedBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(
        self,
        model: MaskedModel,
        tokens: Tensor,
        places: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        segments: Tensor | None,
        labels: Tensor | None,
        predictions_per_row: Tensor,
    ) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        logits, hidden = model(tokens, places, mask, segments)
        total, plain = cross_entropy(logits.flatten(0, 1), targets.flatten(), padding=self.masking.pad)
        if labels is None:
            return Objective(total, {"loss": plain})
        pairs = functional.cross_entropy(model.next_logits(hidden).float(), labels, reduction="none")  # (rows,)
        count = labels.new_full((), labels.shape[0])
        added = total.total + (pairs * predictions_per_row).sum()  # its mean has the weight of a token's loss
        return Objective(Loss(added, total.count), {"loss": plain, "next_sentence_loss": Loss(pairs.detach().sum(), count)})

    def validate(self, model: MaskedModel) -> Validation:
        return Validation(evaluate_text(self.text_data, self.system, self.texts.valid), {}, [])


TASK = TaskDefinition(MaskedConfig, TextConfig, MaskedData, MaskedTask, MaskFiller, format_examples, STARTER)
