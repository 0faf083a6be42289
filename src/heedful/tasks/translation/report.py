"""`heed evaluate` for translation: loss, perplexity and metrics with confidence intervals, compared with a baseline run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.data.input_lines import read_texts, refuse_two_readers
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.evaluation.metrics import METRICS, Options, check_counts
from heedful.evaluation.significance import Comparison, compare
from heedful.evaluation.tables import table
from heedful.storage.writing import output_file
from heedful.tasks.predictor import Loader, Searcher, check_split, missing_split_error
from heedful.tasks.translation.command import EvaluateOptions
from heedful.tasks.translation.data import Examples, examples_of
from heedful.tasks.translation.evaluate import Evaluation, MetricOptions, evaluate

if TYPE_CHECKING:
    from heedful.tasks.translation.predictor import Translator

FEW_RESAMPLES = 100  # enough to check the options


class TranslationReport(NamedTuple):
    evaluation: Evaluation
    sentences: int
    split: str | None  # of the run's data; None: --source
    tokenizer: str  # description of the target vocabulary
    checkpoint: Path
    against: Path | None  # checkpoint of the baseline
    comparison: dict[str, Comparison]  # with the baseline, by metric
    warnings: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        figures = self.evaluation.figures
        result: dict[str, Any] = {"sentences": self.sentences, "left_out_of_loss": self.evaluation.left_out}
        result |= {"loss": figures["loss"], "perplexity": figures["perplexity"]}
        result["scores"] = {name: asdict(score) for name, score in self.evaluation.scores.items()}
        if self.split is not None:
            result["split"] = self.split
        if self.against is not None:
            result["against"] = str(self.against)
            result["comparison"] = {name: asdict(one) for name, one in self.comparison.items()}
        return result

    def text(self) -> str:
        rows = [("metric", "value", "95% interval", "signature")]
        rows += [(name, f"{self.evaluation.figures[name]:.4g}", "", "") for name in ("loss", "perplexity")]
        for name, score in self.evaluation.scores.items():
            interval = "" if score.low is None else f"{score.low:.2f} to {score.high:.2f}"
            rows.append((name, f"{score.value:.2f}", interval, score.signature))
        lines = [f"{self.sentences:,} sentences, {self.tokenizer}, {self.checkpoint}", table(rows)]
        for name, one in self.comparison.items():
            lines.append(
                f"{name}: {one.difference:+.2f} against {self.against}, 95% interval {one.low:+.2f} to {one.high:+.2f}, "
                f"p {one.p_bootstrap:.3f} (paired bootstrap, one-sided), "
                f"{one.p_randomization:.3f} (approximate randomization, two-sided)"
            )
        verdicts = [f"{name} {one.verdict}" for name, one in self.comparison.items()]
        if verdicts:
            lines.append(f"verdict by approximate randomization: {'; '.join(verdicts)}")
        return "\n".join(lines)


def report(
    translator: Translator, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher
) -> TranslationReport:
    names = parse_metrics(options)
    metric_options = MetricOptions(options.lowercase or None, options.tokenize, options.bootstrap)
    baseline = None if options.against is None else type(translator).of(load(options.against))
    config = search(translator)
    if options.source is not None and split is not None:
        raise ConfigError("--split selects from the run's data and has no effect with --source", hint="remove one of them")
    split = split or "test"
    examples = read_examples(translator, options, split)
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        evaluation = evaluate(translator.system, examples, config, names, options=metric_options)
        file.writelines(f"{line}\n" for line in evaluation.translations)
    comparison, warnings = {}, list[str]()
    if baseline is not None:
        warnings = differing_languages(translator.run.data, baseline.run.data)
        other = evaluate(baseline.system, examples, search(baseline), names, options=metric_options)
        for name in names:
            metric = Options(metric_options.lowercase, metric_options.tokenize if name == "bleu" else None)
            pair = other.translations, evaluation.translations
            comparison[name] = compare(*pair, examples.references, metric=name, options=metric)
    return TranslationReport(
        evaluation,
        len(examples.sources),
        None if options.source is not None else split,
        translator.system.target_tokenizer.description,
        translator.checkpoint,
        None if baseline is None else baseline.checkpoint,
        comparison,
        warnings,
    )


def parse_metrics(options: EvaluateOptions) -> list[str]:
    """The names of the metrics; each is computed once on a short example, so that invalid options fail before any work."""
    refuse_two_readers([options.source, options.reference])
    if (options.source is None) != (options.reference is None):
        raise ConfigError("--source and --reference require each other", hint="give both, or neither for the run's data")
    names = list(dict.fromkeys(name.strip() for name in options.metrics.split(",")))
    if options.tokenize is not None and "bleu" not in names:
        given = f"--metrics {options.metrics}"
        raise ConfigError(f"--tokenize {options.tokenize} is an option of bleu, which is missing in {given}")
    for name in names:
        metric = lookup(name, METRICS, "metric")
        resamples = min(options.bootstrap, FEW_RESAMPLES)
        metric(["a"], ["a"], tokenize=options.tokenize if name == "bleu" else None, bootstrap=resamples)
    return names


def read_examples(translator: Translator, options: EvaluateOptions, split: str) -> Examples:
    """The sentences of --source and --reference, else those of a split of the run's data."""
    if options.source is not None and options.reference is not None:
        examples = Examples(list(read_texts(options.source)), list(read_texts(options.reference)))
        check_counts(sources=examples.sources, references=examples.references)
        return examples
    data = translator.run.data
    check_split(data, split)
    corpora = getattr(splits_of(data), split)
    if not corpora:
        raise missing_split_error(split)
    return examples_of(corpora, data.max_ratio)


def differing_languages(data: Any, baseline: Any) -> list[str]:
    """A warning where the baseline was trained on other languages, so that its scores on this test set mean little."""
    expected, given = data.languages, baseline.languages
    if not expected or not given or expected == given:
        return []
    return [
        f"warning: the baseline translates from {given[0]} to {given[1]}, not from {expected[0]} to {expected[1]}; the "
        "comparison is not meaningful"
    ]
