"""What tasks of a source and a target have in common: label-smoothed cross-entropy, and batches from a token store.

The source is encoded, and the target is predicted: a translation, the reply to a dialogue, or the caption of an image.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from torch import Tensor

from heedful.data.batching import Index, padding_fraction, plan_epoch
from heedful.data.mixing import corpus_counts, describe_mixture, mix_corpora
from heedful.data.store import JoinedStore
from heedful.data.streamed import StreamedPlan, StreamedStore
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.batches import Batch, collate, fill_up, pad_length, split_batch
from heedful.tasks.objectives import token_loss, with_model_losses
from heedful.tasks.system import System
from heedful.tasks.translation.data import Corpora
from heedful.tasks.translation.guided_alignment import add_gold_alignment
from heedful.training.loop import StreamedBatch
from heedful.training.update import Objective


class TeacherForcedTask:
    """A task whose model is given a source and learns to predict the target: batches are planned by a subclass."""

    def __init__(self, run: RunConfig, system: System) -> None:
        self.config, self.data = run.task, run.data
        self.search, self.seed, self.system = run.search, run.seed, system

    def plan(self, epoch: int) -> Sequence[Index]:
        """The examples of each batch of an epoch: a pure function of the seed and the epoch."""
        raise NotImplementedError

    def batch(self, indices: Index, epoch: int) -> Batch:
        """The batch of these examples."""
        raise NotImplementedError

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        device, ahead = self.system.device, self.data.prefetch
        return stream_batches(self.plan, self.batch, StreamPosition(epoch, cursor), device=device, ahead=ahead)

    def count(self, batch: Batch) -> int:
        return batch.tokens

    def split(self, batch: Batch, parts: int) -> Sequence[Batch]:
        return split_batch(batch, parts, self.system.target_tokenizer.specials.pad)

    def loss(self, model: SequenceModel, batch: Batch) -> Objective:
        """The objective with teacher forcing: all target positions at once, each after the reference tokens before it."""
        batch = batch.to(self.system.device)
        return self.objective(model, batch.source, batch.source_mask, batch.target_in, batch.target_out)

    def objective(
        self, model: SequenceModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, target_out: Tensor
    ) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        step = model.forced(source, source_mask, target_in)
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), target_out.flatten(), **self.loss_options())
        weighted = Loss(self.loss_weight * smoothed.total, smoothed.count)
        return with_model_losses(Objective(weighted, {"loss": plain}), step.losses)

    @property
    def loss_weight(self) -> float:
        """Weight of the cross-entropy."""
        return 1.0

    def loss_options(self) -> dict[str, Any]:
        """Label smoothing and the padding id, as arguments of `cross_entropy`."""
        return {"padding": self.system.target_tokenizer.specials.pad, "smoothing": self.config.label_smoothing}


class PairsTask(TeacherForcedTask):
    def __init__(self, run: RunConfig, corpora: Corpora, system: System) -> None:
        super().__init__(run, system)
        self.corpora, self.dropout = corpora, run.tokenizer.dropout

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.corpora.train, self.plan(0)
        sizes: dict[str, float] = {"pairs": len(train), "left_out": train.overlong, "batches_per_epoch": len(plan)}
        if isinstance(plan, StreamedPlan):  # without the padding, for which the pairs would have to be encoded
            return sizes | {"tokens_per_epoch": plan.store.epoch_tokens()}
        assert isinstance(train, JoinedStore)
        tokens = sum(int(train.target_lengths[batch].sum()) + len(batch) for batch in plan)
        padding = padding_fraction(plan, train.source_lengths, train.target_lengths)
        return sizes | {"tokens_per_epoch": tokens, "padding": padding}

    def describe(self) -> str:
        sizes = self.statistics()
        text = (
            f"{counted(sizes['pairs'], 'pairs')} in {counted(sizes['batches_per_epoch'], 'batches')} per epoch, "
            f"{sizes['tokens_per_epoch']:,} target tokens"
        )
        if "padding" in sizes:
            text += f", {sizes['padding']:.1%} padding"
        text += describe_mixture(self.epoch_counts(), "pairs")
        if not sizes["left_out"]:
            return text
        return f"{text}; {counted(sizes['left_out'], 'pairs')} longer than {self.data.max_length} tokens left out"

    def epoch_counts(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        train = self.corpora.train
        return train.epoch_counts() if isinstance(train, StreamedStore) else corpus_counts(train.sizes, self.corpora.weights)

    def plan(self, epoch: int) -> Sequence[Index]:
        """The batches of an epoch: a pure function of the seed and the epoch."""
        train, multiple = self.corpora.train, self.data.length_multiple
        if isinstance(train, StreamedStore):
            return train.plan(epoch, budget=self.data.batch_tokens, seed=self.seed, pad_to_multiple_of=multiple)
        chosen = mix_corpora(train.sizes, self.corpora.weights, seed=self.seed, epoch=epoch)
        return plan_epoch(
            train.source_lengths,
            train.target_lengths,
            budget=self.data.batch_tokens,
            seed=self.seed,
            epoch=epoch,
            indices=chosen,
            pad_to_multiple_of=multiple,
        )

    def batch(self, indices: Index, epoch: int) -> Batch:
        """The batch of these pairs; BPE-dropout depends on the seed, the epoch and the pair."""
        train, source, target = self.corpora.train, self.system.source_tokenizer, self.system.target_tokenizer
        if self.dropout:
            keyed = [(train.text(i), {"seed": self.seed, "epoch": epoch, "index": int(i)}) for i in indices]
            sources = [source.encode_sampled(text[0], **key) for text, key in keyed]
            targets = [target.encode_sampled(text[1], **key) for text, key in keyed]
        else:
            sources = [train.source(i).tolist() for i in indices]
            targets = [train.target(i).tolist() for i in indices]
        batch = collate(sources, targets, source.specials, target.specials)
        if self.corpora.links is not None:
            batch = add_gold_alignment(batch, self.corpora.links, indices)
        if self.data.length_multiple == 1:
            return batch
        lengths = self.padded_lengths(batch.source.shape[1], batch.target_in.shape[1])
        return fill_up(batch, self.data.batch_tokens, lengths, source.specials, target.specials)

    def padded_lengths(self, source: int, target: int) -> tuple[int, int]:
        """The lengths that a batch of these lengths is padded to: the same on both sides, so that few shapes occur."""
        length = pad_length(max(source, target), self.data.length_multiple, max(self.data.sides))
        return length, length
