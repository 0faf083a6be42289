"""[task] of translation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from heedful.config.base import NonNegativeNumber, Probability, Problem, ZeroOrCount, ZeroOrSmallCount, plain, refuse, unused
from heedful.evaluation.metrics import METRICS
from heedful.models.family import Architecture
from heedful.tasks.base import RunConfig, TaskConfig, vector_problems
from heedful.tasks.translation.guided_alignment import guided_alignment_problems
from heedful.tasks.translation.sequence_level import SequenceConfig
from heedful.training.train_state import Direction

GuidedHeads = Annotated[tuple[ZeroOrSmallCount, ...], Field(min_length=1)]


class TranslationConfig(TaskConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("encoder-decoder", "decoder")
    name: Literal["translation"] = "translation"
    """Task."""
    label_smoothing: Probability = 0.1
    """Probability mass moved from the true token."""
    smoothing_over: Literal["all", "others", "words"] = "all"
    """Tokens that share it: all, all but the true token, or all but the true token and padding."""
    r_drop: NonNegativeNumber = 0.0
    """R-Drop: weight of the KL divergence between two passes with dropout; 0: one pass."""
    sequence: SequenceConfig = SequenceConfig()
    """Sequence-level training."""
    guided_alignment: NonNegativeNumber = 0.0
    """Weight of the loss between attention and word alignments; 0: none."""
    guided_layer: ZeroOrSmallCount | None = None
    """Decoder layer with guided attention, from 0; default: the second to last."""
    guided_heads: GuidedHeads = (0,)
    """Heads whose mean attention is guided, from 0."""
    validation_metrics: tuple[Literal["bleu", "chrf", "ter", "gleu", "exact_match"], ...] = ("bleu", "chrf")
    """Metrics."""
    validation_sentences: ZeroOrCount = 0
    """Validation sentences to translate; 0: all."""
    samples: ZeroOrCount = 1
    """Translations to show at each validation."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        """The metrics of a validation and whether higher or lower is better."""
        chosen = {name: METRICS[name] for name in self.validation_metrics}
        directions: dict[str, Direction] = {
            name: "higher" if metric.higher_is_better else "lower" for name, metric in chosen.items()
        }
        return {"loss": "lower", "perplexity": "lower", **directions}

    def model_post_init(self, context: Any) -> None:
        no_effect = {"smoothing_over": "task.label_smoothing is 0"} if self.label_smoothing == 0 else {}
        if self.guided_alignment == 0:
            no_effect |= dict.fromkeys(("guided_layer", "guided_heads"), "task.guided_alignment is 0")
        problems = unused(self, no_effect)
        if self.r_drop and self.sequence.method != "none":
            sentence = f"given {self.r_drop} beside task.sequence.method {self.sequence.method!r}; choose one of the two"
            problems.append(Problem("r_drop", sentence))
        refuse(problems)

    @property
    def searches_in_updates(self) -> bool:
        return self.sequence.method != "none"

    def problems_with(self, run: Any) -> list[Problem]:
        problems = guided_alignment_problems(self.guided_alignment, run.data, run.tokenizer.dropout, run.training)
        if self.searches_in_updates:
            why = f"given true, but task.sequence.method {self.sequence.method!r} searches in every update; expected false"
            problems += [
                Problem(f"training.{name}", why) for name in ("compile", "cuda_graphs") if getattr(run.training, name) is True
            ]
        if self.r_drop and not is_stochastic(run):
            reason = "every dropout of the model is 0, so that both passes are identical"
            problems += unused(run, {"task.r_drop": reason})
        return [*problems, *vector_problems(run.model, self.name)]


def is_stochastic(run: RunConfig) -> bool:
    """Whether two forward passes in training differ: by dropout, by the noise of experts, or by gates."""
    options = plain(run.model)
    dropout = any(value for name, value in options.items() if name.endswith("dropout"))
    return bool(dropout or options.get("experts") or run.training.gates.penalty)
