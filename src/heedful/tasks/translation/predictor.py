"""A trained translation model: heedful.load("runs/demo").predict("I am trendy")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from heedful.data.input_lines import is_interactive, read_texts
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.batches import collate
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.predictor import (
    LOSS_TOKENS,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    note_unknown,
    note_unknown_in_chunks,
)
from heedful.tasks.system import batches_of
from heedful.tasks.translation.command import EvaluateOptions, PredictOptions
from heedful.tasks.translation.data import Examples, examples_of
from heedful.tasks.translation.evaluate import Evaluation, MetricOptions, Scored, evaluate, score_pairs
from heedful.tasks.translation.report import TranslationReport, report
from heedful.tasks.translation.translate import Translation, translate, translate_chunks


class Translator(Predictor):
    """A trained translation model.

    >>> translator = heedful.Translator.load(run)
    >>> len(translator.translate(["w1 w2", "w3"], beam=2))
    2
    """

    def translate(self, lines: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each line; options of `SearchConfig` may be given by name."""
        return [translation.text for translation in self.translations(lines, **search)]

    def translations(self, lines: Iterable[str], **search: Any) -> Iterator[Translation]:
        """Yield the translations one by one, with scores and n-best candidates; options as in `translate`."""
        if isinstance(lines, str):
            raise ConfigError(
                f"one text was given, {lines!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return translate(self.system, lines, self.search_config_from(search))

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

    def join(self, others: Sequence[Predictor]) -> Self:
        members: list[Predictor] = [self, *others]
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
