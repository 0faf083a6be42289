"""Bulk work: the options --output, --shard and --commit-every of `heed predict`, and `heed join`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from heedful.cli.output import Json, print_json, print_message, print_text, warn_of_unknown
from heedful.config.bounds import MAX_SIZE
from heedful.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from heedful.runs.bulk import BulkJob
    from heedful.storage.parts import Joined, Shard

PANEL = "Bulk work"
MAX_SHARDS = 10**6

Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write to this file instead. If the process is killed, the same command continues from FILE.parts.",
        rich_help_panel=PANEL,
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="With --output: predict the I-th of N shards of the inputs only, from 1; `heed join FILE` joins them.",
        rich_help_panel=PANEL,
    ),
]
CommitEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_SIZE,
        metavar="INPUTS",
        help="With --output: inputs that are predicted and written together. Default: 1024.",
        rich_help_panel=PANEL,
    ),
]


class Bulk(NamedTuple):
    """The options of bulk work."""

    output: Path
    shard: Shard | None  # None: all shards, and the file is joined
    every: int | None


def bulk_options(output: Path | None, shard: str | None, every: int | None) -> Bulk | None:
    """None without --output; an error for options that have no effect without it."""
    if output is not None:
        return Bulk(output, None if shard is None else parse_shard(shard), every)
    for name, value in (("--shard", shard), ("--commit-every", every)):
        if value is not None:
            raise ConfigError(f"{name} is given without --output, where it would have no effect", hint="add --output FILE")
    return None


def parse_shard(text: str) -> Shard:
    from heedful.storage.parts import Shard

    match = re.fullmatch(r"0*([1-9]\d{0,6})/0*([1-9]\d{0,6})", text)
    if match is None or not int(match[1]) <= int(match[2]) <= MAX_SHARDS:
        raise ConfigError(f"--shard: given {text!r:.40}, expected I/N with 1 <= I <= N, such as 3/8")
    return Shard(int(match[1]), int(match[2]))


def run_bulk(bulk: Bulk, job: BulkJob) -> Joined | None:
    """Predict the inputs of the shard that are not done yet; join the file if there is only one shard, else None."""
    from heedful.runs.bulk import EVERY, predict_to_file
    from heedful.storage.parts import Shard, join_parts, parts_folder

    unknown: dict[str, int] = {}
    try:
        result = predict_to_file(job, bulk.output, bulk.shard or Shard(1, 1), unknown, every=bulk.every or EVERY)
    except KeyboardInterrupt as signal:
        folder = parts_folder(bulk.output)
        if not folder.exists():
            raise
        raise Interrupted(
            f"interrupted; the parts that are done are kept in {folder}", hint="run the same command again to continue"
        ) from signal
    warn_of_unknown([f"{word} (line {number})" for word, number in unknown.items()])
    before = f", {result.found:,} were done before" if result.found else ""
    name = f"shard {bulk.shard}: " if bulk.shard is not None else ""
    print_message(f"{name}{result.predicted:,} of {result.parts.inputs:,} inputs predicted{before}")
    if bulk.shard is not None:
        print_message(f"join the file when all shards are complete: heed join {bulk.output}")
        return None
    joined = join_parts(result.parts, bulk.output)
    print_message(f"{bulk.output} is complete; {result.parts.folder} may be removed")
    return joined


def join(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The file given with --output.")],
    json: Json = False,
) -> None:
    """Join the shards of an output in the order of the inputs.

    Fails if a shard is missing or incomplete. The parts stay in FILE.parts, which may be removed then."""
    from heedful.storage.parts import join_parts, load_parts

    parts = load_parts(output)
    joined = join_parts(parts, output)
    if json:
        print_json({"output": str(output), "inputs": parts.inputs, "parts": parts.total, **joined._asdict()})
    else:
        print_text(str(output))
        print_message(f"{parts.inputs:,} inputs in {parts.total:,} parts; {parts.folder} may be removed")
