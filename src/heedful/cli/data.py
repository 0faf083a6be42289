"""heed data: the catalog of public corpora, checks of data files, and cleaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import COMMAND_LINE, Device, Json, check_finite, print_json, print_message, print_text, table
from heedful.config.bounds import MAX_NUMBER, MAX_SIZE

if TYPE_CHECKING:
    from heedful.data.clean import Scorer
    from heedful.data.report import CheckReport

EXAMPLE = 48  # characters of an example in the list

app = typer.Typer(help="Get public corpora, check data files before training, and clean them.", no_args_is_help=True)


@app.command("list")
def list_catalog(json: Json = False) -> None:
    """List the public corpora of the catalog, and the built-in toys."""
    from heedful.data.fetch import list_corpora
    from heedful.data.toys import list_toys

    corpora, toys = list_corpora(), list_toys()
    if json:
        print_json({"corpora": corpora, "toys": toys})
        return
    rows = [(str(one["name"]), str(one["task"]), "yes" if one["here"] else "no", str(one["terms"])) for one in corpora]
    print_text(table([("name", "task", "local", "license"), *rows]))
    print_text('\nToys, generated examples with exact answers: data.builtin = "NAME"\n')
    lines = [(toy["name"], toy["form"], f"{toy['summary']}; {shorten(toy['example'])}") for toy in toys]
    print_text(table([("toy", "data.form", "what, and an example"), *lines]))


def shorten(example: str) -> str:
    return example if len(example) <= EXAMPLE else f"{example[: EXAMPLE - 1]}…"


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name listed by `heed data list`.")],
    destination: Annotated[Path, typer.Option("--to", help="Destination folder.")] = Path("data"),
    source: Annotated[Path | None, typer.Option("--from", help="Local folder to copy from. Default: $HEED_DATA.")] = None,
    json: Json = False,
) -> None:
    """Download a corpus, or copy it from a local folder, and verify it."""
    from dataclasses import asdict

    from heedful.data.fetch import get_corpus

    fetched = get_corpus(name, destination, source)
    if json:
        print_json(asdict(fetched) | {"folder": str(fetched.folder)})
    else:
        print_text(str(fetched.folder))
        print_message(f"{len(fetched.files)} files from {fetched.origin}; train on them with data.folder={fetched.folder}")


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A recipe, or a run folder, and options to override; or the source and target files of the training set, "
            "then optionally of the validation and test sets: train.en train.de …; or .tsv, .jsonl, .parquet files of "
            "sentence pairs."
        ),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first suspicious line.")] = False,
    header: Annotated[bool, typer.Option("--header", help="The first line of each file is a header.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(metavar="SOURCE,TARGET", help="Columns of .parquet files. Default: the only two that have text."),
    ] = None,
    json: Json = False,
) -> None:
    """Check data files: UTF-8, empty texts, line counts, implausible lengths, duplicates and leaks.

    Given a recipe, checks the data of its task: sentence pairs, labeled texts or plain text.

    Exits with code 3 if training would refuse the data."""
    if is_recipe(files[0]):
        report, max_unusable = check_recipe(files, {"strict": strict, "header": header, "columns": columns is not None})
    else:
        report, max_unusable = check_files(files, strict, header, parse_names("--columns", columns))
    refusal = report.training_error(max_unusable)
    if json:
        print_json(report.as_dict() | {"refused": refusal and refusal.args[0]})
        if refusal is not None:
            raise typer.Exit(refusal.exit_code)
        return
    print_text("\n".join(report.lines()))
    if refusal is not None:
        raise refusal


@app.command()
def clean(
    files: Annotated[
        list[str],
        typer.Argument(help="The source and the target file, or one .tsv, .jsonl or .parquet file of sentence pairs."),
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The pairs that are kept: .jsonl or .tsv.")],
    max_ratio: Annotated[
        float,
        typer.Option(
            min=1.0, max=MAX_NUMBER, callback=check_finite, help="Maximum ratio of the lengths of both sides, in characters."
        ),
    ] = 9.0,
    max_words: Annotated[
        int | None, typer.Option(min=1, max=MAX_SIZE, help="Maximum words of a side. Default: any number.")
    ] = None,
    drop_copies: Annotated[bool, typer.Option("--drop-copies", help="Drop pairs whose sides are the same text.")] = False,
    scripts: Annotated[
        str | None,
        typer.Option(metavar="SOURCE,TARGET", help="Scripts of both sides, such as latin,cyrillic. Default: any script."),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(metavar="SOURCE,TARGET", help="Languages of both sides, such as en,de; needs py3langid. Default: any."),
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep repeated pairs.")] = False,
    near_duplicates: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=1.0,
            callback=check_finite,
            metavar="SIMILARITY",
            help="Drop pairs at least this similar to an earlier one, such as 0.8.",
        ),
    ] = None,
    score: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run of task translation that scores the pairs; with --min-score.")
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            min=-MAX_NUMBER,
            max=0.0,
            callback=check_finite,
            help="With --score: minimum mean log-probability per target token, such as -4.",
        ),
    ] = None,
    header: Annotated[bool, typer.Option("--header", help="The first line of each file is a header.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(metavar="SOURCE,TARGET", help="Columns of .parquet files. Default: the only two that have text."),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Drop unusable, misaligned and repeated pairs, and report how many each filter dropped.

    Filters: length ratio, number of words, copies, scripts, languages, duplicates, near-duplicates (MinHash), and the score of
    a model. A pair is counted at the first filter that drops it."""
    from heedful.data.clean import Filters
    from heedful.data.clean import clean as clean_corpus
    from heedful.data.sources import files_of, refuse_streams
    from heedful.data.splits import corpus_of_files

    corpus = corpus_of_files(files, header=header, columns=parse_names("--columns", columns))
    refuse_streams(files_of(corpus))
    filters = Filters(
        max_ratio=max_ratio,
        max_words=max_words,
        drop_copies=drop_copies,
        scripts=parse_names("--scripts", scripts),
        languages=parse_names("--languages", languages),
        duplicates=not keep_duplicates,
        near_duplicates=near_duplicates,
        min_score=min_score,
    )
    report = clean_corpus(corpus, filters, output, None if score is None else scorer_of(score, device))
    if json:
        print_json(report.as_dict()["corpora"][0] | {"output": str(output)})
    else:
        print_text("\n".join(report.lines()))
        print_message(f"wrote {output}")


def scorer_of(run: Path, device: str | None) -> Scorer:
    """The mean log-probability per target token by a translation run."""
    from heedful.tasks.translation.predictor import Translator

    translator = Translator.load(run, device=device)

    def score(sources: Sequence[str], targets: Sequence[str]) -> list[float | None]:
        scored = translator.score(sources, targets)
        return [None if one is None else one.log_probability / one.tokens for one in scored]

    return score


def is_recipe(name: str) -> bool:
    """Whether this is a recipe or a run folder; a file of the name of a recipe is data."""
    from heedful.runs.recipes import all_recipes

    return name.endswith(".toml") or Path(name).is_dir() or (name in all_recipes() and not Path(name).exists())


def check_recipe(words: list[str], given: dict[str, bool]) -> tuple[CheckReport, float]:
    """Check the data of a recipe with overrides; return the report and the maximum fraction of unusable lines.

    given: whether each option of data files was given, which is an error"""
    from heedful.errors import ConfigError
    from heedful.runs.build import data_of
    from heedful.runs.load import read_recipe
    from heedful.runs.recipes import find_recipe, naming_folder

    for option, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"--{option} is given with the recipe {words[0]!r}, where it would have no effect",
                hint=f"remove --{option}; the options of the data are in [data] of the recipe",
            )
    recipe, *overrides = words
    path = find_recipe(recipe)
    config = read_recipe(path, overrides, origin=COMMAND_LINE).config
    with naming_folder(path):
        return data_of(config).check(), config.data.max_unusable


def check_files(files: list[str], strict: bool, header: bool, columns: tuple[str, str] | None) -> tuple[CheckReport, float]:
    """Check files of sentence pairs; returns as `check_recipe`."""
    from heedful.data.check import Rules, check_corpora
    from heedful.data.input_lines import refuse_two_readers
    from heedful.data.splits import splits_of_files
    from heedful.data.unusable import MAX_UNUSABLE

    refuse_two_readers(map(Path, files))
    return check_corpora(splits_of_files(files, header=header, columns=columns), Rules(strict=strict)), MAX_UNUSABLE


def parse_names(option: str, given: str | None) -> tuple[str, str] | None:
    """Two names, of source and target, separated by a comma."""
    from heedful.errors import ConfigError

    if given is None:
        return None
    source, comma, target = given.partition(",")
    if not source or not comma or not target or "," in target:
        raise ConfigError(f"{option}: given {given!r}, expected two names, separated by a comma: en,de")
    return source, target
