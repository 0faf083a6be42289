"""heed translate, evaluate, score."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.output import (
    COMMAND_LINE,
    Checkpoint,
    Device,
    Json,
    Precision,
    Search,
    print_json,
    print_message,
    print_text,
    table,
    warn_of_unknown,
)
from heedful.config.bounds import MAX_RESAMPLES
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.runs.build import Translator
    from heedful.runs.predictor import Predictor
    from heedful.search import SearchConfig
    from heedful.tasks.evaluate_translations import MetricOptions

FEW_RESAMPLES = 100  # enough to check the options

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Together = Annotated[list[Path] | None, typer.Option("--with", help="More runs, for an ensemble.")]


def translate(
    run: Run,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files, plain or .gz; - for standard input. Default: -.")
    ] = None,
    search: Search = None,
    prefixes: Annotated[Path | None, typer.Option(help="File of forced target prefixes, one per line.")] = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Translate lines of text.

    With -s n_best=N each line yields N rows: score TAB text."""
    from heedful.data.input_lines import STDIN, is_interactive, read_available, read_texts, refuse_two_readers
    from heedful.tasks.translate import CHUNK_LINES, chunk_lines

    files = files or [STDIN]
    refuse_two_readers([*files, prefixes])
    check_prefix_count(files, prefixes)
    translator = load_models(run, together, checkpoint, device).at(precision)
    config = search_config(translator, search)
    lines = (line for file in files for line in read_texts(file, may_be_empty=True))
    if any(map(is_terminal, files)):
        print_message("type a sentence and press Enter; end with Ctrl-D")
    chunks = read_available(lines, CHUNK_LINES) if any(map(is_interactive, files)) else chunk_lines(lines)
    unknown: dict[str, int] = {}  # words outside the vocabulary, and the first line of each
    begun = None if prefixes is None else collect_unknown(read_texts(prefixes, may_be_empty=True), translator, unknown)
    for number, one in enumerate(translator.translate_chunks(chunks, config, begun), 1):
        for word in translator.system.source_tokenizer.unknown_words(one.source):
            unknown.setdefault(word, number)
        if json:
            best = one.candidates[0]
            candidates = [{"text": c.text, "score": c.score, "log_probability": c.log_probability} for c in one.candidates]
            result: dict[str, Any] = {"source": one.source, "translation": best.text, "score": best.score}
            print_json(result | {"log_probability": best.log_probability, "candidates": candidates})
        else:
            for candidate in one.candidates:
                print_text(candidate.text if config.n_best == 1 else f"{candidate.score:.4f}\t{candidate.text}")
    warn_of_unknown([f"{word} (line {number})" for word, number in unknown.items()])


def search_config(worker: Predictor, search: list[str] | None) -> SearchConfig:
    """The run's search config with the options of -s; reports a method implied by an option, as sampling by temperature=2."""
    config = worker.search_config(search or [], origin=COMMAND_LINE)
    is_explicit = any(option.partition("=")[0].strip() == "method" for option in search or [])
    default = worker.run.search.method
    if config.method != default and not is_explicit:
        print_message(f"search method: {config.method}, implied by {', '.join(search or [])} (default of the run: {default})")
    return config


def collect_unknown(prefixes: Iterator[str], translator: Translator, unknown: dict[str, int]) -> Iterator[str]:
    """Yield the prefixes; add their words outside the target vocabulary to `unknown`."""
    for number, prefix in enumerate(prefixes, start=1):
        for word in translator.system.target_tokenizer.unknown_words(prefix):
            unknown.setdefault(word, number)
        yield prefix


def is_terminal(path: Path) -> bool:
    from heedful.data.input_lines import STDIN_NAMES

    return str(path) in STDIN_NAMES and sys.stdin is not None and sys.stdin.isatty()


def check_prefix_count(files: list[Path], prefixes: Path | None) -> None:
    """Check that there is one prefix per line, before any work; streams are checked while they are read."""
    from heedful.data.input_lines import is_interactive, read_texts
    from heedful.errors import ConfigError

    if prefixes is None or any(map(is_interactive, [*files, prefixes])):
        return
    lines = sum(1 for file in files for _ in read_texts(file, may_be_empty=True))
    count = sum(1 for _ in read_texts(prefixes, may_be_empty=True))
    if lines != count:
        raise ConfigError(f"--prefixes: {prefixes} has {count:,} lines for {lines:,} lines; expected one for each line")


# Options of `evaluate` for runs of the task translation only; other runs refuse them.
TRANSLATION_OPTIONS = {
    "source": "--source",
    "reference": "--reference",
    "metrics": "--metrics",
    "lowercase": "--lowercase",
    "tokenize": "--tokenize",
    "bootstrap": "--bootstrap",
    "against": "--against",
    "output": "--output",
    "search": "--search",
    "together": "--with",
}


def evaluate(
    context: typer.Context,
    run: Run,
    source: Annotated[Path | None, typer.Option(help="File to translate. Default: the run's data, see --split.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference translations of --source.")] = None,
    split: Annotated[str, typer.Option(help="Split of the run's data: test, valid or train.")] = "test",
    metrics: Annotated[
        str, typer.Option(help="Metrics: any of bleu, chrf, ter, gleu, exact_match.")
    ] = "bleu,chrf,ter,exact_match",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU tokenizer: 13a, intl, char or none.")] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MAX_RESAMPLES, help="Bootstrap resamples for the 95% interval; 0: no interval.")
    ] = 1000,
    against: Annotated[Path | None, typer.Option(help="Baseline run: test whether the difference is significant.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write translations to this file.")] = None,
    search: Search = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Evaluate a run on its test data.

    Reports loss and perplexity or accuracy; for translation also sacreBLEU metrics with confidence intervals."""
    from heedful.cli.generate import print_evaluation
    from heedful.data.input_lines import refuse_two_readers
    from heedful.runs.build import load, load_ensemble
    from heedful.tasks.evaluate_translations import MetricOptions
    from heedful.tasks.evaluate_translations import evaluate as evaluate_system

    refuse_two_readers([source, reference])
    check_source_and_reference(context, source, reference)
    names = parse_metrics(metrics, tokenize, bootstrap)
    worker: Any = load(run, checkpoint, device)
    if worker.run.task.name != "translation":
        check_options_of_task(context, run, worker.run.task.name)
        print_evaluation(worker.at(precision), split, precision, json)
        return
    translator = (load_ensemble([run, *together], checkpoint, device) if together else worker).at(precision)
    baseline = None if against is None else load_models(against, None, checkpoint, device).at(precision)
    options = MetricOptions(lowercase or None, tokenize, bootstrap)
    config = search_config(translator, search)
    baseline_config = None if baseline is None else baseline.search_config(search or [], origin=COMMAND_LINE)
    examples = read_examples(translator, source, reference, split)
    with output_file(output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        evaluation = evaluate_system(translator.system, examples, config, names, options=options)
        file.writelines(f"{line}\n" for line in evaluation.translations)
    result: dict[str, Any] = {"sentences": len(examples.sources), "left_out_of_loss": evaluation.left_out}
    result |= {"loss": evaluation.figures["loss"], "perplexity": evaluation.figures["perplexity"]}
    result["scores"] = {name: asdict(score) for name, score in evaluation.scores.items()}
    result["tokenizer"] = translator.system.target_tokenizer.description
    result["checkpoint"], result["precision"] = str(translator.checkpoint), precision
    if source is None:
        result["split"] = split
    if baseline is not None and baseline_config is not None:
        warn_if_languages_differ(translator.run, baseline.run)
        other = evaluate_system(baseline.system, examples, baseline_config, names, options=options)
        result["against"] = str(baseline.checkpoint)
        result["comparison"] = compare_systems(other.translations, evaluation.translations, examples.references, names, options)
    print_json(result) if json else print_text(format_result(result))


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the option was given on the command line."""
    origin = context.get_parameter_source(name)
    return origin is not None and origin.name == "COMMANDLINE"


def check_options_of_task(context: typer.Context, run: Path, task: str) -> None:
    from heedful.errors import ConfigError

    given = [option for name, option in TRANSLATION_OPTIONS.items() if is_given(context, name)]
    if given:
        raise ConfigError(f"{', '.join(given)}: expected a run of task 'translation', but {run} is a run of task {task!r}")


def check_source_and_reference(context: typer.Context, source: Path | None, reference: Path | None) -> None:
    from heedful.errors import ConfigError

    if (source is None) != (reference is None):
        raise ConfigError("--source and --reference require each other", hint="give both, or neither for the run's data")
    if source is not None and is_given(context, "split"):
        raise ConfigError("--split selects from the run's data and has no effect with --source", hint="remove one of them")


def score(
    run: Run,
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.")],
    target: Annotated[Path, typer.Option(help="Translations of --source, one per line.")],
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Compute the log-probabilities of given translations.

    Prints one line per pair: log-probability TAB number of tokens."""
    from heedful.data.input_lines import read_texts, refuse_two_readers
    from heedful.evaluation.metrics import perplexity

    refuse_two_readers([source, target])
    translator = load_models(run, together, checkpoint, device)
    scored = translator.score(list(read_texts(source)), list(read_texts(target)))
    known = [one for one in scored if one is not None]
    total, count = sum(one.log_probability for one in known), sum(one.tokens for one in known)
    if json:
        pairs = [None if one is None else one._asdict() for one in scored]
        print_json({"pairs": pairs, "tokens": count, "perplexity": perplexity(-total, count).value})
        return
    for one in scored:
        print_text("too long" if one is None else f"{one.log_probability:.6f}\t{one.tokens}")
    print_message(f"perplexity {perplexity(-total, count).value:.4g} over {count:,} tokens")


def compare_systems(
    baseline: list[str], system: list[str], references: list[str], names: list[str], how: MetricOptions
) -> dict[str, Any]:
    """Significance tests of the difference between two systems, for each metric."""
    from heedful.evaluation.metrics import Options
    from heedful.evaluation.significance import compare

    options = {name: Options(how.lowercase, how.tokenize if name == "bleu" else None) for name in names}
    return {name: asdict(compare(baseline, system, references, metric=name, options=options[name])) for name in names}


def warn_if_languages_differ(run: Any, baseline: Any) -> None:
    """Warn that the baseline was trained on other languages, so that its scores on this test set mean little."""
    expected, given = run.data.languages, baseline.data.languages
    if expected and given and expected != given:
        print_message(
            f"warning: the baseline translates from {given[0]} to {given[1]}, not from {expected[0]} to {expected[1]}; the "
            "comparison is not meaningful"
        )


def load_models(run: Path, together: list[Path] | None, checkpoint: str | None, device: str | None) -> Translator:
    from heedful.runs.build import load_ensemble, load_translator

    return load_ensemble([run, *together], checkpoint, device) if together else load_translator(run, checkpoint, device)


def read_examples(translator: Translator, source: Path | None, reference: Path | None, split: str) -> Any:
    from heedful.data.input_lines import read_texts
    from heedful.data.splits import splits_of
    from heedful.evaluation.metrics import check_counts
    from heedful.runs.build import examples_of
    from heedful.runs.predictor import check_split, missing_split_error
    from heedful.tasks.evaluate_translations import Examples

    if source is not None and reference is not None:
        examples = Examples(list(read_texts(source)), list(read_texts(reference)))
        check_counts(sources=examples.sources, references=examples.references)
        return examples
    data = translator.run.data
    check_split(data, split)
    corpora = getattr(splits_of(data), split)
    if not corpora:
        raise missing_split_error(split)
    return examples_of(corpora, data.max_ratio)


def parse_metrics(given: str, tokenize: str | None, bootstrap: int) -> list[str]:
    """The names of the metrics; each is computed once on a short example, so that invalid options fail before any work."""
    from heedful.errors import ConfigError, lookup
    from heedful.evaluation.metrics import METRICS

    names = list(dict.fromkeys(name.strip() for name in given.split(",")))
    if tokenize is not None and "bleu" not in names:
        raise ConfigError(f"--tokenize {tokenize} is an option of bleu, which is missing in --metrics {given}")
    for name in names:
        metric = lookup(name, METRICS, "metric")
        metric(["a"], ["a"], tokenize=tokenize if name == "bleu" else None, bootstrap=min(bootstrap, FEW_RESAMPLES))
    return names


def format_result(result: dict[str, Any]) -> str:
    rows = [("metric", "value", "95% interval", "signature")]
    rows += [(name, f"{result[name]:.4g}", "", "") for name in ("loss", "perplexity")]
    for name, one in result["scores"].items():
        interval = "" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}"
        rows.append((name, f"{one['value']:.2f}", interval, one["signature"]))
    text = f"{result['sentences']:,} sentences, {result['tokenizer']}, {result['checkpoint']}\n{table(rows)}"
    for name, one in result.get("comparison", {}).items():
        text += (
            f"\n{name}: {one['difference']:+.2f} against {result['against']}, "
            f"95% interval {one['low']:+.2f} to {one['high']:+.2f}, "
            f"p {one['p_bootstrap']:.3f} (paired bootstrap, one-sided), "
            f"{one['p_randomization']:.3f} (approximate randomization, two-sided)"
        )
    verdicts = [f"{name} {one['verdict']}" for name, one in result.get("comparison", {}).items()]
    if verdicts:
        text += f"\nverdict by approximate randomization: {'; '.join(verdicts)}"
    return text
