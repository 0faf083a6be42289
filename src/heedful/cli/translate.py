"""heed translate, evaluate, score."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.bounds import MAX_RESAMPLES
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
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.build import Translator
    from heedful.predictor import Predictor
    from heedful.search import SearchConfig
    from heedful.tasks.evaluate_translations import MetricOptions

FEW_RESAMPLES = 100  # enough for a trial, and more than the fewest that are allowed

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Together = Annotated[list[Path] | None, typer.Option("--with", help="More runs, to translate as an ensemble.")]


def translate(
    run: Run,
    files: Annotated[
        list[Path] | None, typer.Argument(help='Text files, pipes or "-" for standard input, plain or .gz; default: "-".')
    ] = None,
    search: Search = None,
    prefixes: Annotated[Path | None, typer.Option(help="A file of beginnings that translations must have, one a line.")] = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Translate lines, in their order, as they come. With -s n_best=N each line gives N rows: score TAB text."""
    from heedful.data.input_lines import STDIN, chunks_as_they_arrive, is_interactive, read_texts, refuse_two_readers
    from heedful.tasks.translate import CHUNK_LINES, chunk_lines

    files = files or [STDIN]
    refuse_two_readers([*files, prefixes])
    refuse_other_number(files, prefixes)
    translator = load_all(run, together, checkpoint, device).at(precision)
    config = search_config(translator, search)
    lines = (line for file in files for line in read_texts(file, may_be_empty=True))
    if any(map(is_terminal, files)):
        print_message("type a sentence and press Enter; Ctrl-D ends")
    chunks = chunks_as_they_arrive(lines, CHUNK_LINES) if any(map(is_interactive, files)) else chunk_lines(lines)
    strange: dict[str, int] = {}  # words that the model does not know, and the first line of each
    begun = None if prefixes is None else noting_unknown(read_texts(prefixes, may_be_empty=True), translator, strange)
    for number, one in enumerate(translator.translate_chunks(chunks, config, begun), 1):
        for word in translator.system.source_tokenizer.unknown_words(one.source):
            strange.setdefault(word, number)
        if json:
            best = one.candidates[0]
            candidates = [{"text": c.text, "score": c.score, "log_probability": c.log_probability} for c in one.candidates]
            result: dict[str, Any] = {"source": one.source, "translation": best.text, "score": best.score}
            print_json(result | {"log_probability": best.log_probability, "candidates": candidates})
        else:
            for candidate in one.candidates:
                print_text(candidate.text if config.n_best == 1 else f"{candidate.score:.4f}\t{candidate.text}")
    warn_of_unknown([f"{word} (line {number})" for word, number in strange.items()])


def search_config(worker: Predictor, search: list[str] | None) -> SearchConfig:
    """The run's search with the options of -s; reports a method that follows from an option, as sampling from temperature=2."""
    config = worker.search_config(search or [], origin=COMMAND_LINE)
    named = any(option.partition("=")[0].strip() == "method" for option in search or [])
    if config.method != worker.run.search.method and not named:
        own = worker.run.search.method
        print_message(f"search method: {config.method}, because of {', '.join(search or [])} (the run's own method is {own})")
    return config


def noting_unknown(prefixes: Iterator[str], translator: Translator, strange: dict[str, int]) -> Iterator[str]:
    """The prefixes; words of them that the model cannot write are added to `strange`."""
    for number, prefix in enumerate(prefixes, start=1):
        for word in translator.system.target_tokenizer.unknown_words(prefix):
            strange.setdefault(word, number)
        yield prefix


def is_terminal(path: Path) -> bool:
    from heedful.data.input_lines import STDIN_NAMES

    return str(path) in STDIN_NAMES and sys.stdin is not None and sys.stdin.isatty()


def refuse_other_number(files: list[Path], prefixes: Path | None) -> None:
    """Every line needs one prefix. Files are counted before any work; a stream is counted as it comes."""
    from heedful.data.input_lines import is_interactive, read_texts
    from heedful.errors import ConfigError

    if prefixes is None or any(map(is_interactive, [*files, prefixes])):
        return
    lines = sum(1 for file in files for _ in read_texts(file, may_be_empty=True))
    begun = sum(1 for _ in read_texts(prefixes, may_be_empty=True))
    if lines != begun:
        raise ConfigError(f"--prefixes: {prefixes} has {begun:,} lines for {lines:,} lines; expected one for each line")


# Options of `evaluate` that only the task translation has; runs of other tasks refuse them.
OF_TRANSLATION = {
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
    source: Annotated[Path | None, typer.Option(help="A file to translate; default: the run's own test data.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference translations of --source.")] = None,
    split: Annotated[str, typer.Option(help="Of the run's own data: test, valid or train.")] = "test",
    metrics: Annotated[str, typer.Option(help="Any of bleu, chrf, ter, gleu, exact_match.")] = "bleu,chrf,ter,exact_match",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare without case.")] = False,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU's tokenizer: 13a, intl, char, none.")] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MAX_RESAMPLES, help="Resamples for the 95% interval; 0: no interval.")
    ] = 1000,
    against: Annotated[Path | None, typer.Option(help="Another run: is the difference significant?")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    search: Search = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Score a run on its test data: loss and perplexity or accuracy; of translations sacreBLEU's metrics with intervals."""
    from heedful.build import load, load_ensemble
    from heedful.cli.generate import print_evaluation
    from heedful.data.input_lines import refuse_two_readers
    from heedful.tasks.evaluate_translations import MetricOptions
    from heedful.tasks.evaluate_translations import evaluate as evaluate_system

    refuse_two_readers([source, reference])
    refuse_half_a_pair(context, source, reference)
    names = metric_names(metrics, tokenize, bootstrap)
    worker: Any = load(run, checkpoint, device)
    if worker.run.task.name != "translation":
        refuse_options_of_translation(context, run, worker.run.task.name)
        print_evaluation(worker.at(precision), split, precision, json)
        return
    translator = (load_ensemble([run, *together], checkpoint, device) if together else worker).at(precision)
    rival = None if against is None else load_all(against, None, checkpoint, device).at(precision)
    how = MetricOptions(lowercase or None, tokenize, bootstrap)
    config = search_config(translator, search)
    rival_config = None if rival is None else rival.search_config(search or [], origin=COMMAND_LINE)
    examples = examples_for(translator, source, reference, split)
    with output_file(output or Path(os.devnull)) as file:  # before the work is done, not after it
        result = evaluate_system(translator.system, examples, config, names, options=how)
        file.writelines(f"{line}\n" for line in result.translations)
    found: dict[str, Any] = {"sentences": len(examples.sources), "left_out_of_loss": result.left_out}
    found |= {"loss": result.figures["loss"], "perplexity": result.figures["perplexity"]}
    found["scores"] = {name: plain(score) for name, score in result.scores.items()}
    found["tokenizer"] = translator.system.target_tokenizer.description
    found["checkpoint"], found["precision"] = str(translator.checkpoint), precision
    if source is None:
        found["split"] = split
    if rival is not None and rival_config is not None:
        warn_of_other_languages(translator.run, rival.run)
        other = evaluate_system(rival.system, examples, rival_config, names, options=how)
        found["against"] = str(rival.checkpoint)
        found["comparison"] = compared(other.translations, result.translations, examples.references, names, how)
    print_json(found) if json else print_text(readable(found))


def given(context: typer.Context, name: str) -> bool:
    """Whether the option stands on the command line."""
    origin = context.get_parameter_source(name)
    return origin is not None and origin.name == "COMMANDLINE"


def refuse_options_of_translation(context: typer.Context, run: Path, task: str) -> None:
    from heedful.errors import ConfigError

    typed = [option for name, option in OF_TRANSLATION.items() if given(context, name)]
    if typed:
        verb = "are options" if len(typed) > 1 else "is an option"
        raise ConfigError(f"{', '.join(typed)} {verb} for runs of task 'translation'; {run} is a run of task {task!r}")


def refuse_half_a_pair(context: typer.Context, source: Path | None, reference: Path | None) -> None:
    from heedful.errors import ConfigError

    if (source is None) != (reference is None):
        raise ConfigError("--source and --reference belong together; give both or neither")
    if source is not None and given(context, "split"):
        raise ConfigError("--split is for the run's own data and has no effect with --source; leave out the one or the other")


def score(
    run: Run,
    source: Annotated[Path, typer.Option(help="The sources, one a line.")],
    target: Annotated[Path, typer.Option(help="Their translations.")],
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """The log-probability of given translations: one line a pair, log-probability TAB tokens."""
    from heedful.data.input_lines import read_texts, refuse_two_readers
    from heedful.evaluation.metrics import perplexity

    refuse_two_readers([source, target])
    translator = load_all(run, together, checkpoint, device)
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


def compared(theirs: list[str], ours: list[str], references: list[str], names: list[str], how: MetricOptions) -> dict[str, Any]:
    """Whether the difference between two systems is significant, by each metric."""
    from heedful.evaluation.metrics import Options
    from heedful.evaluation.significance import compare

    options = {name: Options(how.lowercase, how.tokenize if name == "bleu" else None) for name in names}
    return {name: plain(compare(theirs, ours, references, metric=name, options=options[name])) for name in names}


def warn_of_other_languages(ours: Any, theirs: Any) -> None:
    """Scores of a run on a test set that it was not made for say little."""
    here, there = ours.data.languages, theirs.data.languages
    if here and there and here != there:
        print_message(
            f"the other run translates from {there[0]} to {there[1]}, not from {here[0]} to {here[1]}: mistrust what follows"
        )


def load_all(run: Path, together: list[Path] | None, checkpoint: str | None, device: str | None) -> Translator:
    from heedful.build import load_ensemble, load_translator

    return load_ensemble([run, *together], checkpoint, device) if together else load_translator(run, checkpoint, device)


def examples_for(translator: Translator, source: Path | None, reference: Path | None, split: str) -> Any:
    from heedful.build import examples_of
    from heedful.data.input_lines import read_texts
    from heedful.data.splits import splits_of
    from heedful.evaluation.metrics import check_counts
    from heedful.predictor import check_split, missing_split_error
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


def metric_names(typed: str, tokenize: str | None, bootstrap: int) -> list[str]:
    """The metrics, tried with their options on one line, so that what they refuse is refused before any work."""
    from heedful.errors import ConfigError, lookup
    from heedful.evaluation.metrics import METRICS

    names = list(dict.fromkeys(name.strip() for name in typed.split(",")))
    if tokenize is not None and "bleu" not in names:
        raise ConfigError(f"--tokenize {tokenize} is an option of bleu, which is not among --metrics {typed}")
    for name in names:
        metric = lookup(name, METRICS, "metric")
        metric(["a"], ["a"], tokenize=tokenize if name == "bleu" else None, bootstrap=min(bootstrap, FEW_RESAMPLES))
    return names


def plain(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)


def readable(found: dict[str, Any]) -> str:
    rows = [("figure", "value", "95% interval", "signature")]
    rows += [(name, f"{found[name]:.4g}", "", "") for name in ("loss", "perplexity")]
    for name, one in found["scores"].items():
        interval = "" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}"
        rows.append((name, f"{one['value']:.2f}", interval, one["signature"]))
    text = f"{found['sentences']:,} sentences, {found['tokenizer']}, {found['checkpoint']}\n{table(rows)}"
    for name, one in found.get("comparison", {}).items():
        text += (
            f"\n{name}: {one['difference']:+.2f} against {found['against']}, "
            f"95% interval {one['low']:+.2f} to {one['high']:+.2f}, "
            f"p {one['p_bootstrap']:.3f} (paired bootstrap, one-sided), "
            f"{one['p_randomization']:.3f} (approximate randomization, two-sided)"
        )
    verdicts = [f"{name} {one['verdict']}" for name, one in found.get("comparison", {}).items()]
    if verdicts:
        text += f"\nverdict by approximate randomization: {'; '.join(verdicts)}"
    return text
