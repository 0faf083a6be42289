"""heed data: the catalog of public corpora, and checks of data files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.output import Json, print_json, print_message, print_text, table

app = typer.Typer(help="Get public corpora, and check data files before training.", no_args_is_help=True)


@app.command("list")
def list_catalog(json: Json = False) -> None:
    """List the public corpora of the catalog."""
    from heedful.data.fetch import list_corpora

    corpora = list_corpora()
    if json:
        print_json({"corpora": corpora})
        return
    rows = [(str(one["name"]), str(one["task"]), "yes" if one["here"] else "no", str(one["terms"])) for one in corpora]
    print_text(table([("name", "task", "local", "license"), *rows]))


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
            help="Source and target files of the training set, then optionally of the validation and test sets: "
            "train.en train.de …; or .tsv, .jsonl, .parquet files."
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
    """Check files of sentence pairs: line counts, UTF-8, empty sides, implausible lengths, duplicates and leaks.

    Exits with code 3 if training would refuse the files."""
    from heedful.data.check import Rules, check_corpora
    from heedful.data.input_lines import refuse_two_readers
    from heedful.data.splits import MAX_UNUSABLE, splits_of_files

    refuse_two_readers(map(Path, files))
    report = check_corpora(splits_of_files(files, header=header, columns=parse_columns(columns)), Rules(strict=strict))
    refusal = report.training_error(MAX_UNUSABLE)
    if json:
        print_json(report.as_dict() | {"refused": refusal and refusal.args[0]})
        if refusal is not None:
            raise typer.Exit(refusal.exit_code)
        return
    print_text("\n".join(report.lines()))
    if refusal is not None:
        raise refusal


def parse_columns(given: str | None) -> tuple[str, str] | None:
    from heedful.errors import ConfigError

    if given is None:
        return None
    source, comma, target = given.partition(",")
    if not source or not comma or not target or "," in target:
        raise ConfigError(f"--columns: given {given!r}, expected two names, separated by a comma: en,de")
    return source, target
