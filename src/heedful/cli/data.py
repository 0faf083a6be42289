"""heed data: the catalog of public corpora, and the check of one's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.output import Json, print_json, print_message, print_text, table

app = typer.Typer(help="Public corpora by name; check files before training.", no_args_is_help=True)


@app.command("list")
def list_all(json: Json = False) -> None:
    """The public corpora that are known by name."""
    from heedful.data.fetch import list_corpora

    found = list_corpora()
    if json:
        print_json({"corpora": found})
        return
    rows = [(str(one["name"]), str(one["task"]), "yes" if one["here"] else "no", str(one["terms"])) for one in found]
    print_text(table([("name", "task", "here", "terms"), *rows]))


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name that `heed data list` shows.")],
    destination: Annotated[Path, typer.Option("--to", help="Where to put it.")] = Path("data"),
    source: Annotated[Path | None, typer.Option("--from", help="A local folder that has it; $HEED_DATA unless said.")] = None,
    json: Json = False,
) -> None:
    """Fetch a corpus, or take it from a local folder, and check it."""
    from dataclasses import asdict

    from heedful.data.fetch import get_corpus

    fetched = get_corpus(name, destination, source)
    if json:
        print_json(asdict(fetched) | {"folder": str(fetched.folder)})
    else:
        print_text(str(fetched.folder))
        print_message(f"{len(fetched.files)} files from {fetched.origin}; data.folder={fetched.folder} reads them")


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(help="train.en train.de [valid.en valid.de [test.en test.de]]; or .tsv, .jsonl")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first line that looks wrong.")] = False,
    header: Annotated[bool, typer.Option("--header", help="The first line of each file names its columns.")] = False,
    json: Json = False,
) -> None:
    """Check files of sentence pairs: unequal line counts, bad UTF-8, empty sides, absurd lengths, duplicates and leaks.

    Ends with exit code 3 if training would refuse the files."""
    from heedful.data.check import Rules, check_corpora
    from heedful.data.input_lines import refuse_two_readers
    from heedful.data.splits import MAX_UNUSABLE, splits_of_files

    refuse_two_readers(map(Path, files))
    report = check_corpora(splits_of_files(files, header=header), Rules(strict=strict))
    refusal = report.training_error(MAX_UNUSABLE)
    if json:
        print_json(report.as_dict() | {"refused": refusal and refusal.args[0]})
        if refusal is not None:
            raise typer.Exit(refusal.exit_code)
        return
    print_text("\n".join(report.lines()))
    if refusal is not None:
        raise refusal
