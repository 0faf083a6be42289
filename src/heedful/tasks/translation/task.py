"""The translation task: batches from a token store, label-smoothed cross-entropy, validation by translating."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from heedful.data.batching import Index, mix_corpora, padding_fraction, plan_epoch
from heedful.data.splits import DataConfig
from heedful.nn.losses import Loss, cross_entropy, symmetric_kl
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.batches import Batch, collate, fill_up, pad_length, split_batch
from heedful.tasks.objectives import token_loss, with_model_losses
from heedful.tasks.system import System
from heedful.tasks.translation.config import TranslationConfig
from heedful.tasks.translation.data import Corpora, TranslationData, format_examples
from heedful.tasks.translation.evaluate import evaluate
from heedful.tasks.translation.guided_alignment import add_gold_alignment, make_guide
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.sequence_level import sequence_objective
from heedful.tasks.translation.starter import STARTER
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class TranslationTask:
    def __init__(self, run: RunConfig, corpora: Corpora, system: System) -> None:
        self.config: TranslationConfig = run.task
        self.data: DataConfig = run.data
        self.search, self.seed, self.dropout = run.search, run.seed, run.tokenizer.dropout
        self.corpora, self.system = corpora, system
        if self.config.guided_alignment:
            self.guide = make_guide(system.models[0], self.config)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.corpora.train, self.plan(0)
        return {
            "pairs": len(train),
            "left_out": train.overlong,
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": sum(int(train.target_lengths[batch].sum()) + len(batch) for batch in plan),
            "padding": padding_fraction(plan, train.source_lengths, train.target_lengths),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        text = (
            f"{sizes['pairs']:,} pairs in {sizes['batches_per_epoch']:,} batches per epoch, "
            f"{sizes['tokens_per_epoch']:,} target tokens, {sizes['padding']:.1%} padding"
        )
        if not sizes["left_out"]:
            return text
        return f"{text}; {sizes['left_out']:,} pairs longer than {self.data.max_length} tokens left out"

    def plan(self, epoch: int) -> list[Index]:
        """The batches of an epoch: a pure function of the seed and the epoch."""
        train = self.corpora.train
        chosen = mix_corpora(train.sizes, self.corpora.weights, seed=self.seed, epoch=epoch)
        return plan_epoch(
            train.source_lengths,
            train.target_lengths,
            budget=self.data.batch_tokens,
            seed=self.seed,
            epoch=epoch,
            indices=chosen,
            pad_to_multiple_of=self.data.length_multiple,
        )

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        device, ahead = self.system.device, self.data.prefetch
        return stream_batches(self.plan, self.batch, StreamPosition(epoch, cursor), device=device, ahead=ahead)

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
        longest = max(batch.source.shape[1], batch.target_in.shape[1])
        length = pad_length(longest, self.data.length_multiple, max(self.data.sides))
        return fill_up(batch, self.data.batch_tokens, length, source.specials, target.specials)

    def count(self, batch: Batch) -> int:
        return batch.tokens

    def split(self, batch: Batch, parts: int) -> Sequence[Batch]:
        return split_batch(batch, parts, self.system.target_tokenizer.specials.pad)

    def loss(self, model: SequenceModel, batch: Batch) -> Objective:
        """The objective with teacher forcing: all target positions at once, each after the reference tokens before it."""
        batch = batch.to(self.system.device)
        plain = partial(self.objective, model, batch.source, batch.source_mask, batch.target_in, batch.target_out)
        objective = plain() if batch.gold is None else self.guide.add_loss(plain, batch.gold)
        if self.config.sequence.method == "none":
            return objective
        return sequence_objective(objective, model, batch, self.system.target_tokenizer.specials, self.config.sequence)

    def objective(
        self, model: SequenceModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, target_out: Tensor
    ) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        if self.config.r_drop:
            return self.r_drop_objective(model, source, source_mask, target_in, target_out)
        step = model.forced(source, source_mask, target_in)
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), target_out.flatten(), **self.loss_options())
        weighted = Loss(self.config.sequence.cross_entropy_weight * smoothed.total, smoothed.count)
        return with_model_losses(Objective(weighted, {"loss": plain}), step.losses)

    def r_drop_objective(
        self, model: SequenceModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, target_out: Tensor
    ) -> Objective:
        """R-Drop: two passes with different dropout, and the KL divergence between them."""
        both_masks = None if source_mask is None else source_mask.repeat(2, 1)
        step = model.forced(source.repeat(2, 1), both_masks, target_in.repeat(2, 1))
        logits = model.project(step.hidden.flatten(0, 1))  # (2 x rows x target time, vocab)
        smoothed, plain = cross_entropy(logits, target_out.repeat(2, 1).flatten(), **self.loss_options())
        real = target_out.flatten() != self.system.target_tokenizer.specials.pad
        first, second = logits.chunk(2)
        divergence = symmetric_kl(first, second, real)
        # Half the sum of both passes, so that the loss is that of one batch; alpha is halved with it, as published.
        total = (smoothed.total + self.config.r_drop * divergence.total) / 2
        report = {"loss": Loss(plain.total / 2, divergence.count), "disagreement": divergence}
        return with_model_losses(Objective(Loss(total, divergence.count), report), step.losses)

    def loss_options(self) -> dict[str, Any]:
        """Label smoothing and the padding id, as arguments of `cross_entropy`."""
        pad = self.system.target_tokenizer.specials.pad
        return {"padding": pad, "smoothing": self.config.label_smoothing, "share": self.config.smoothing_over}

    def validate(self, model: SequenceModel) -> Validation:
        """Evaluate on the validation data, by the function that `heed evaluate` calls."""
        result = evaluate(
            self.system,
            self.corpora.valid,
            self.search,
            self.config.validation_metrics,
            self.config.validation_sentences,
        )
        shown = zip(self.corpora.valid.sources, result.translations, strict=False)
        samples = [f"{source}  ->  {text}" for source, text in list(shown)[: self.config.samples]]
        signatures = {name: score.signature for name, score in result.scores.items()}
        return Validation(result.figures, signatures, samples)


TASK = TaskDefinition(TranslationConfig, DataConfig, TranslationData, TranslationTask, Translator, format_examples, STARTER)
