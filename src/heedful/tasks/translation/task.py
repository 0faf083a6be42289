"""The translation task: sentence pairs (pairs_task.py), with further objectives, and validation by translating."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from heedful.data.splits import DataConfig
from heedful.nn.losses import Loss, cross_entropy, symmetric_kl
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batches import Batch
from heedful.tasks.objectives import with_model_losses
from heedful.tasks.pairs_task import PairsTask
from heedful.tasks.system import System
from heedful.tasks.translation.config import TranslationConfig
from heedful.tasks.translation.data import Corpora, TranslationData, format_examples
from heedful.tasks.translation.evaluate import evaluate
from heedful.tasks.translation.guided_alignment import make_guide
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.sequence_level import sequence_objective
from heedful.tasks.translation.starter import STARTER
from heedful.training.loop import Validation
from heedful.training.samples_log import MAX_SAMPLES, Sample
from heedful.training.update import Objective


class TranslationTask(PairsTask):
    def __init__(self, run: RunConfig, corpora: Corpora, system: System) -> None:
        super().__init__(run, corpora, system)
        self.config: TranslationConfig = run.task
        if self.config.guided_alignment:
            self.guide = make_guide(system.models[0], self.config)

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
        if self.config.r_drop:
            return self.r_drop_objective(model, source, source_mask, target_in, target_out)
        return super().objective(model, source, source_mask, target_in, target_out)

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
        return super().loss_options() | {"share": self.config.smoothing_over}

    @property
    def loss_weight(self) -> float:
        return self.config.sequence.cross_entropy_weight

    def validate(self, model: SequenceModel) -> Validation:
        """Evaluate on the validation data, by the function that `heed evaluate` calls."""
        result = evaluate(
            self.system,
            self.corpora.valid,
            self.search,
            self.config.validation_metrics,
            self.config.validation_sentences,
        )
        valid, outputs = self.corpora.valid, result.translations
        shown = [Sample(*texts) for texts in zip(valid.sources, valid.references, outputs, strict=False)]
        samples = [f"{one.source}  ->  {one.output}" for one in shown[: self.config.samples]]
        signatures = {name: score.signature for name, score in result.scores.items()}
        return Validation(result.figures, signatures, samples, shown[:MAX_SAMPLES])


TASK = TaskDefinition(TranslationConfig, DataConfig, TranslationData, TranslationTask, Translator, format_examples, STARTER)
