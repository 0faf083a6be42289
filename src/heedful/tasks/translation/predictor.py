"""A trained translation model: heedful.load("runs/demo").predict("I am trendy")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from heedful.data.conllu import Arc
from heedful.data.input_lines import is_interactive, read_texts
from heedful.data.pairs import pairs
from heedful.data.samples import Sample, from_lines
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, DataError
from heedful.search import SearchConfig
from heedful.tasks.batches import collate, source_tensors
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss, Tokens, token_outputs, tokens_from_ids
from heedful.tasks.forced import ForcedBatch, sequence_batches
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.predictor import (
    LOSS_TOKENS,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    note_unknown,
    note_unknown_in_chunks,
    refuse_empty,
)
from heedful.tasks.system import batches_of
from heedful.tasks.translation.command import EvaluateOptions, PredictOptions
from heedful.tasks.translation.data import Examples, examples_of
from heedful.tasks.translation.evaluate import Evaluation, MetricOptions, Scored, evaluate, score_pairs
from heedful.tasks.translation.report import TranslationReport, report
from heedful.tasks.translation.samples import encode_pairs, fill_targets, pair_samples
from heedful.tasks.translation.translate import Piece, Translation, decode_pieces, translate, translate_chunks
from heedful.text.tokenizer import Tokenizer


class Translator(Predictor):
    """A trained translation model.

    >>> translator = heedful.Translator.load(run)
    >>> len(translator.translate(["w1 w2", "w3"], beam=2))
    2
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "encoding", "decoding one token")
    has_source = True

    def translate(self, lines: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each line; options of `SearchConfig` may be given by name."""
        return [translation.text for translation in self.translations(lines, **search)]

    def translations(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, **search: Any
    ) -> Iterator[Translation]:
        """Yield the translations one by one, with scores and n-best candidates; options as in `translate`. prefixes: text that
        each translation must start with."""
        if isinstance(lines, str):
            raise ConfigError(
                f"one text was given, {lines!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return translate(self.system, lines, self.search_config_from(search), prefixes)

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Translation]:
        return self.translations(texts, **options)

    def predict_chunks(
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, options: PredictOptions, unknown: dict[str, int]
    ) -> Iterator[Translation]:
        prefixes = None
        if options.prefixes is not None:
            lines = read_texts(options.prefixes, may_be_empty=True)
            prefixes = note_unknown(lines, self.system.target_tokenizer, unknown)
        chunks = note_unknown_in_chunks(chunks, self.system.source_tokenizer, unknown)
        return translate_chunks(self.system, chunks, config, prefixes)

    def check_inputs(self, files: Sequence[Path], options: PredictOptions) -> None:
        """One prefix per line; streams are checked while they are read."""
        prefixes = options.prefixes
        if prefixes is None or any(map(is_interactive, [*files, prefixes])):
            return
        lines = sum(1 for file in files for _ in read_texts(file, may_be_empty=True))
        count = sum(1 for _ in read_texts(prefixes, may_be_empty=True))
        if lines != count:
            raise ConfigError(f"--prefixes: {prefixes} has {count:,} lines for {lines:,} lines; expected one for each line")

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored | None]:
        """The log-probability of each target given its source; None if a side is too long for the model."""
        return score_pairs(self.system, sources, targets)

    def evaluate(
        self,
        examples: Examples | tuple[Sequence[str], Sequence[str]],
        metrics: Sequence[str] = ("bleu", "chrf"),
        options: MetricOptions | None = None,
        **search: Any,
    ) -> Evaluation:
        """Loss, perplexity and metrics on (sources, references); options of `SearchConfig` may be given by name.

        >>> sources, references = ["w1 w2", "w3"], ["w2 w1", "w3"]
        >>> result = translator.evaluate((sources, references), metrics=("bleu", "chrf"), beam=2)
        >>> sorted(result.figures)
        ['bleu', 'chrf', 'loss', 'perplexity']
        >>> len(result.translations)
        2
        """
        return evaluate(self.system, examples_from(examples), self.search_config_from(search), metrics, options=options)

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> TranslationReport:
        return report(self, split, options, load=load, search=search)

    def validate(self) -> ValidationResult:
        data, task = self.run.data, self.run.task
        examples = examples_of(splits_of(data).valid, data.max_ratio)
        result = evaluate(self.system, examples, self.run.search, task.validation_metrics, task.validation_sentences)
        signatures = {name: score.signature for name, score in result.scores.items()}
        return ValidationResult(result.figures, len(examples.sources), len(result.translations), signatures)

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Pairs longer than the model's maximum are left out."""
        system, data = self.system, self.run.data
        every = chain.from_iterable(pairs(corpus, max_ratio=data.max_ratio) for corpus in splits_of(data).train)
        chosen_pairs = list(islice(every, count))
        sources = system.source_tokenizer.encode_many([pair.source for pair in chosen_pairs])
        targets = system.target_tokenizer.encode_many([pair.target for pair in chosen_pairs])
        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        order = sorted((i for i, length in enumerate(lengths) if length <= system.max_length), key=lambda i: -lengths[i])
        specials = system.source_tokenizer.specials, system.target_tokenizer.specials
        for chosen in batches_of(order, lambda i: lengths[i], LOSS_TOKENS):
            batch = collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)
            yield partial(sequence_losses, system.models[0], batch, specials[1].pad)

    def sample_texts(self, split: str) -> Iterator[Sample]:
        return pair_samples(self.run.data, split)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Lines of source TAB target TAB alignment, the last two optional."""
        return from_lines(read_texts(path), str(path))

    def sample_of(self, text: str, arcs: Sequence[Arc] | None = None) -> Sample:
        return Sample(text, source_arcs=arcs)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        filled = fill_targets(self.system, list(samples), self.search_config())
        return sequence_batches(self.system, encode_pairs(self.system, filled))

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The source with its translation, or with the given target."""
        refuse_empty(text, target)
        if target is not None and config is not None:
            raise ConfigError("search options have no effect with a given target", hint="remove one of them")
        system, source = self.system, self.encode_source(text)
        if target is None:
            (best, *_) = decode_pieces(system, [Piece(0, source.ids, [], text)], config or self.run.search)[0]
            output = tokens_from_ids(system.target_tokenizer, best.text, best.tokens)
        else:
            output = tokens_from_ids(system.target_tokenizer, target, system.target_tokenizer.encode(target))
        specials = system.target_tokenizer.specials
        batch = collate([source.ids], [output.ids], system.source_tokenizer.specials, specials).to(system.device)
        start, end = system.target_tokenizer.pieces([specials.start, specials.end])
        steps = torch.arange(batch.target_out.shape[1], device=system.device)
        outputs = token_outputs(system.target_tokenizer, batch.target_out[0], steps)
        return EncodedExample(source, output, start, end, batch.source, batch.target_in, outputs)

    def encode_source(self, text: str) -> Tokens:
        """Tokenize a source and check its length."""
        refuse_empty(text)
        system = self.system
        tokens = tokens_from_ids(system.source_tokenizer, text, system.source_tokenizer.encode(text))
        if not 0 < len(tokens.ids) <= system.max_length:
            raise DataError(
                f"the source has {len(tokens.ids)} tokens; expected 1 to {system.max_length}", hint="give one sentence"
            )
        return tokens

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        source = self.encode_source(text)
        ids, _ = source_tensors([source.ids], self.system.source_tokenizer.specials)
        return replace(example, source=source, source_ids=ids.to(self.system.device))

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The best translation with this prefix."""
        assert example.source is not None, "a translation has a source"
        piece = Piece(0, example.source.ids, list(prefix), example.source.text)
        best = decode_pieces(self.system, [piece], config or self.run.search)[0][0]
        return Decoded(best.text, best.tokens, best.log_probability, best.score)

    def token_loss(self) -> TokenLoss:
        task, omitted = self.run.task, []
        if task.r_drop:
            omitted.append(f"adds {task.r_drop / 2:g} x the symmetric KL divergence between two passes with dropout (R-Drop)")
        if task.guided_alignment:
            omitted.append(f"adds {task.guided_alignment:g} x the guided alignment loss")
        if task.sequence.method != "none":
            weight = f"multiplies it by {task.sequence.cross_entropy_weight:g} and adds"
            omitted.append(f"{weight} a sequence-level loss on sentences generated by the model ({task.sequence.method})")
        return TokenLoss(task.label_smoothing, task.smoothing_over, omitted)

    @property
    def input_tokenizer(self) -> Tokenizer:
        return self.system.source_tokenizer

    def join(self, others: Sequence[Predictor]) -> Self:
        members = [self, *map(type(self).of, others)]
        for member in members:
            for side in ("source_tokenizer", "target_tokenizer"):
                if getattr(member.system, side).fingerprint != getattr(self.system, side).fingerprint:
                    raise ConfigError(
                        f"{member.checkpoint.parent.parent} has another {side.replace('_', ' ')} than "
                        f"{self.checkpoint.parent.parent}; expected the same in all runs"
                    )
        return type(self)(self.run, replace(self.system, models=[one.model for one in members], engines={}), self.checkpoint)


def examples_from(given: Examples | tuple[Sequence[str], Sequence[str]]) -> Examples:
    """Sources and references as lists; anything but two lists of texts is an error."""
    sides = [] if isinstance(given, str) else list(given)
    if len(sides) != 2 or any(isinstance(side, str) for side in sides):
        raise ConfigError(
            f"evaluate was given {given!r:.60}; expected (sources, references), two lists of texts",
            hint="call translator.evaluate((sources, references))",
        )
    return Examples(*map(list, sides))
