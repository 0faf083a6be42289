"""A trained translation model: heedful.load("runs/demo").predict("I am trendy")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.data.conllu import Arc
from heedful.data.input_lines import is_interactive, read_texts
from heedful.data.pairs import pairs
from heedful.data.samples import Sample, from_lines
from heedful.data.splits import splits_of
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import TokenLoss
from heedful.tasks.pair_predictor import PairPredictor
from heedful.tasks.predictor import Loader, Searcher, ValidationResult, note_unknown, note_unknown_in_chunks
from heedful.tasks.translation.command import EvaluateOptions, PredictOptions
from heedful.tasks.translation.data import Examples, examples_of
from heedful.tasks.translation.evaluate import Evaluation, MetricOptions, Scored, evaluate, score_pairs
from heedful.tasks.translation.job import PairJob
from heedful.tasks.translation.report import TranslationReport, report
from heedful.tasks.translation.samples import pair_samples
from heedful.tasks.translation.translate import InputLine, Translation, line_pieces, translate, translate_chunks


class Translator(PairPredictor):
    """A trained translation model.

    >>> translator = heedful.Translator.load(run)
    >>> len(translator.translate(["w1 w2", "w3"], beam=2))
    2
    """

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

    def job(self, text: str, *, number: int = 0, stream: bool = False, prefix: str = "", **search: Any) -> PairJob:
        parts = line_pieces(self.system, InputLine(text, prefix), number)
        return PairJob(self.system, text, parts, self.search_config_from(search), Translation, stream=stream)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Translation]:
        prefixes = None
        if options.prefixes is not None:
            lines = islice(read_texts(options.prefixes, may_be_empty=True), first - 1, None)
            prefixes = note_unknown(lines, self.system.target_tokenizer, unknown, first)
        chunks = note_unknown_in_chunks(chunks, self.system.source_tokenizer, unknown, first)
        return translate_chunks(self.system, chunks, config, prefixes, first)

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

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        data = self.run.data
        for corpus in getattr(splits_of(data), split):
            yield from ((pair.source, pair.target) for pair in pairs(corpus, max_ratio=data.max_ratio))

    def sample_texts(self, split: str) -> Iterator[Sample]:
        return pair_samples(self.run.data, split)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Lines of source TAB target TAB alignment, the last two optional."""
        return from_lines(read_texts(path), str(path))

    def sample_of(self, text: str, arcs: Sequence[Arc] | None = None) -> Sample:
        return Sample(text, source_arcs=arcs)

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


def examples_from(given: Examples | tuple[Sequence[str], Sequence[str]]) -> Examples:
    """Sources and references as lists; anything but two lists of texts is an error."""
    sides = [] if isinstance(given, str) else list(given)
    if len(sides) != 2 or any(isinstance(side, str) for side in sides):
        raise ConfigError(
            f"evaluate was given {given!r:.60}; expected (sources, references), two lists of texts",
            hint="call translator.evaluate((sources, references))",
        )
    return Examples(*map(list, sides))
