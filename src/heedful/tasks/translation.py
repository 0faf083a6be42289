"""The translation task: batches from a token store, label-smoothed cross-entropy, validation by translating."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from heedful.config.base import Config, NonNegativeNumber, Probability, Problem, ZeroOrCount, ZeroOrSmallCount, refuse, unused
from heedful.data.batching import Index, mix_corpora, padding_fraction, plan_epoch
from heedful.data.check import check_data
from heedful.data.encode import StoreOptions, open_store
from heedful.data.links import AlignedCorpus, JoinedLinks, open_links
from heedful.data.pairs import pairs, sentences
from heedful.data.report import CheckReport
from heedful.data.sources import CorpusConfig, files_of, find_path, refuse_streams
from heedful.data.splits import DataConfig, splits_of
from heedful.data.store import JoinedStore
from heedful.evaluation.metrics import METRICS
from heedful.models import SequenceModel
from heedful.nn.losses import Loss, cross_entropy, symmetric_kl
from heedful.search import SearchConfig
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.batches import Batch, collate, fill_up, pad_length, split_batch
from heedful.tasks.evaluate_translations import Examples, evaluate
from heedful.tasks.guided_alignment import add_gold_alignment, make_guide
from heedful.tasks.objectives import token_loss, with_model_losses
from heedful.tasks.sequence_level import SequenceConfig, sequence_objective
from heedful.tasks.translate import System
from heedful.text.tokenizer import Tokenizer
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.train_state import Direction
from heedful.training.update import Objective

GuidedHeads = Annotated[tuple[ZeroOrSmallCount, ...], Field(min_length=1)]


class TranslationConfig(Config):
    form: ClassVar[str] = "pairs"  # required data.form
    unit: ClassVar[str] = "tokens"
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


class Corpora(NamedTuple):
    """Training and validation data."""

    train: JoinedStore
    weights: tuple[float, ...]  # sampling weights of the corpora in train
    valid: Examples
    links: JoinedLinks | None = None  # token alignments of train, for guided alignment


def examples_of(corpora: Iterable[CorpusConfig], max_ratio: float) -> Examples:
    """The sources and references of some corpora."""
    usable = [pair for corpus in corpora for pair in pairs(corpus, max_ratio=max_ratio)]
    return Examples([pair.source for pair in usable], [pair.target for pair in usable])


class TranslationTask:
    def __init__(self, config: TranslationConfig, data: DataConfig, search: SearchConfig, seed: int) -> None:
        self.config, self.data, self.search, self.seed = config, data, search, seed

    def check(self) -> CheckReport:
        """Read every line once and report the unusable ones; too many of them are an error."""
        refuse_streams(self.files())
        report = check_data(self.data)
        refusal = report.training_error(self.data.max_unusable)
        if refusal is not None:
            raise refusal
        return report

    def files(self) -> list[Path]:
        corpora = [corpus for split in splits_of(self.data) for corpus in split]
        alignments = [find_path(corpus.alignment) for corpus in corpora if corpus.alignment]
        return [*(file for corpus in corpora for file in files_of(corpus)), *alignments]

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer of a side is trained on."""
        return sentences(splits_of(self.data).train, side, max_ratio=self.data.max_ratio)

    @property
    def tags(self) -> list[str]:
        """Tags prepended to sources, each a single token."""
        return list(dict.fromkeys(corpus.tag for corpus in splits_of(self.data).train if corpus.tag))

    def open_corpora(self, tokenizers: tuple[Tokenizer, Tokenizer], report: CheckReport, *, keep_text: bool) -> Corpora:
        """Encode the data, without the lines that the check dropped."""
        splits = splits_of(self.data)
        options = StoreOptions(self.data.max_length, self.data.max_ratio, keep_text=keep_text)
        stores = [
            open_store(corpus, tokenizers, options, dropped=dropped)
            for corpus, dropped in zip(splits.train, report.dropped("train"), strict=True)
        ]
        weights = tuple(corpus.weight for corpus in splits.train)
        links = None
        if self.config.guided_alignment:
            aligned = map(
                AlignedCorpus, splits.train, stores, (corpus.total for corpus in report.corpora if corpus.split == "train")
            )
            links = JoinedLinks([open_links(corpus, tokenizers) for corpus in aligned])
        return Corpora(JoinedStore(stores), weights, examples_of(splits.valid, self.data.max_ratio), links)

    def bind(self, corpora: Corpora, system: System, dropout: float = 0.0) -> TranslationTask:
        """Set the data, the system whose model is trained, and the probability of BPE-dropout."""
        self.corpora, self.system, self.dropout = corpora, system, dropout
        if self.config.guided_alignment:
            self.guide = make_guide(system.models[0], self.config)
        return self

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model to train: unchanged."""
        return model

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'translator = heedful.load("{folder}")\ntranslator.translate(["…"])'
        return usage, f"It was trained on sentences of up to {self.data.max_length} tokens; longer ones are split."

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
        step = model.step(target_in, model.start(source, source_mask, room=0))
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), target_out.flatten(), **self.loss_options())
        weighted = Loss(self.config.sequence.cross_entropy_weight * smoothed.total, smoothed.count)
        return with_model_losses(Objective(weighted, {"loss": plain}), step.losses)

    def r_drop_objective(
        self, model: SequenceModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, target_out: Tensor
    ) -> Objective:
        """R-Drop: two passes with different dropout, and the KL divergence between them."""
        both_masks = None if source_mask is None else source_mask.repeat(2, 1)
        step = model.step(target_in.repeat(2, 1), model.start(source.repeat(2, 1), both_masks, room=0))
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
