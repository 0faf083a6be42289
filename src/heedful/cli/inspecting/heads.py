"""heed inspect RUN --heads: a table of all heads, and a picture.

kind     layer  head  confidence  gradient  ablation  relevance  does
encoder  0      0     0.94        0.41      +0.0213   0.22       position -1 96%
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from heedful.cli.output import progress, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from heedful.inspection.head_figures import Cell
    from heedful.inspection.report.blocks import Block
    from heedful.predictor import Predictor
    from heedful.studies.head_samples import Sample
    from heedful.studies.head_statistics import Frequencies

COUNTED = 20_000  # lines of training text from which it is known what is rare
UNIT = "nats a token"
NO_RELEVANCE = "relevance: not for this family, which has layers that it cannot be handed down through."
COLUMNS = {
    "confidence": "mean of the largest weight",
    "gradient": "|dL/dgate|, of length 1 within a layer",
    "ablation": "nats a token lost without the head",
    "relevance": "its share of what its layer hands on",
    "does": "how often it looks there (and how often the best fixed offset would)",
}


def found(
    worker: Predictor, *, data: Path | None = None, conllu: Path | None = None, sentences: int = 200, json: bool = False
) -> dict[str, Any]:
    """data: lines of source, TAB target, TAB alignment, the last two as far as they are known; the run's validation data
    unless a file is given. json: a machine reads it, and watches no bar."""
    from heedful.errors import ConfigError, DataError
    from heedful.studies.head_samples import pairs_of, texts_of, translated
    from heedful.studies.heads import study

    task = worker.run.task.name
    if task not in ("translation", "language"):
        raise ConfigError(f"given a run of task {task!r}; heads can be looked at in runs of: translation, language")
    if data is not None and conllu is not None:
        raise ConfigError("given --data and --conllu; expected one of them")
    samples = list(islice(samples_of(worker, data, conllu), sentences))
    if task == "language":
        pairs = texts_of(worker.system, samples)
    else:
        pairs = pairs_of(worker.system, translated(worker.system, samples, worker.search_config()))
    if not pairs:
        raise DataError(
            f"none of {len(samples)} sentences can be looked at: they are empty, not cut where words end, or longer than "
            f"{worker.system.max_length} tokens",
            hint="give sentences like those that the model was trained on",
        )
    frequencies, counted = frequencies_of(worker, samples)
    with progress(f"heads, {len(pairs):,} sentences", quiet=json) as tell:
        seen = study(worker.system, pairs, frequencies, tell)
    return {
        "corpus": str(conllu or data or "the run's validation data"),
        "sentences": len(pairs),
        "left_out": len(samples) - len(pairs),
        "loss": seen.loss,
        "frequencies": counted,
        "heads": [as_plain(head) for head in seen.heads],
    }


def samples_of(worker: Predictor, data: Path | None, conllu: Path | None) -> Iterator[Sample]:
    from heedful.data.conllu import read_trees
    from heedful.data.input_lines import read_texts
    from heedful.studies.head_samples import Sample, from_grammar, from_lines, from_trees

    if conllu is not None:
        yield from from_trees(read_trees(conllu))
    elif data is not None:
        yield from from_lines(read_texts(data), str(data))
    elif worker.run.task.name == "language":
        from heedful.data.corpus_text import lines_of, passages

        for passage in passages(worker.run.data, "valid"):
            yield from (Sample(line) for line in lines_of(passage) if line.strip())
    else:
        from heedful.data.grammar import generate
        from heedful.data.pairs import pairs
        from heedful.data.splits import splits_of

        for corpus in splits_of(worker.run.data).valid:
            if corpus.builtin:
                yield from from_grammar(generate(corpus.split or "train", corpus.count or 0, corpus.seed or 0))  # type: ignore[arg-type]
            else:
                yield from (Sample(one.source, one.target) for one in pairs(corpus, max_ratio=worker.run.data.max_ratio))


def frequencies_of(worker: Predictor, samples: Iterable[Sample]) -> tuple[Frequencies, str]:
    """How often tokens occur in the training text, or where that is no longer there in the sentences looked at; and which."""
    from heedful.build import task_of
    from heedful.errors import DataError
    from heedful.studies.head_samples import frequencies_in

    tokenizers = {"source": worker.system.source_tokenizer, "target": worker.system.target_tokenizer}
    task = task_of(worker.run)
    try:
        lines = {side: list(islice(task.lines(side), COUNTED)) for side in tokenizers}
        counted = f"the first {max(map(len, lines.values())):,} lines of the training text"
    except DataError:
        lines = {"source": [one.source for one in samples], "target": [one.target or one.source for one in samples]}
        counted = "these sentences, for the training text is not there"
    return {side: frequencies_in(tokenizer, lines[side]) for side, tokenizer in tokenizers.items()}, counted


def as_plain(head: Any) -> dict[str, Any]:
    kept = {name: value for name, value in head._asdict().items() if name != "measures"}
    return kept | {
        "roles": [one._asdict() for one in head.roles],
        "leanings": [one._asdict() for one in head.leanings],
        "measures": [one._asdict() for one in head.measures],
    }


def as_text(found: dict[str, Any]) -> str:
    columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in columns_of(found).items()), 120)
    return "\n".join([over(found), table(rows_of(found)), columns, *remarks(found)])


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.inspection.head_figures import grids
    from heedful.inspection.report.blocks import Pictures, Table, Terms, Words, sentence

    cells, rows = cells_of(found), rows_of(found)
    caption = ". ".join(sentence(text) for text in (f"{shades(cells)} (square-root scale)", explained(cells)) if text)
    return [
        Words(f"{over(found)}."),
        Pictures(grids(cells, UNIT), f"{caption}."),
        Table(rows, "all heads"),
        Terms(columns_of(found)),
        *(Words(sentence(text), "hint") for text in remarks(found)),
    ]


def over(found: dict[str, Any]) -> str:
    left = f", {found['left_out']:,} left out" if found["left_out"] else ""
    return f"{found['sentences']:,} sentences of {found['corpus']}{left}; loss {found['loss']:.4f} nats a token"


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    known = columns_of(found)
    rows: list[tuple[str, ...]] = [("kind", "layer", "head", *known)]
    for head in found["heads"]:
        sure, relevant = ("" if head[name] is None else f"{head[name]:.2f}" for name in ("confidence", "relevance"))
        place = head["kind"], str(head["layer"]), str(head["head"])
        importance = f"{head['share']:.2f}", f"{head['ablation']:+.4f}", *([relevant] if "relevance" in known else [])
        roles = [told(role, head["alignment_error"]) for role in head["roles"]]
        does = ", ".join([*roles, *(f"mostly {told(one, None)}" for one in head["leanings"])])
        rows.append((*place, sure, *importance, does or "-"))
    return rows


def columns_of(found: dict[str, Any]) -> dict[str, str]:
    """Those that say something, and what."""
    known = any(head["relevance"] is not None for head in found["heads"])
    return {name: meaning for name, meaning in COLUMNS.items() if known or name != "relevance"}


def remarks(found: dict[str, Any]) -> list[str]:
    """What is rare, where a head looks for it; and what is not known of such a model."""
    rare = any(role["role"] == "rare" for head in found["heads"] for role in head["roles"])
    told = [f"rare is what is rare in {found['frequencies']}."] if rare else []
    return told + ([] if "relevance" in columns_of(found) else [NO_RELEVANCE])


def told(role: dict[str, Any], error: float | None) -> str:
    from heedful.inspection.roles import MOSTLY

    what = {"positional": "position", "syntactic": "", "rare": "rare", "alignment": "alignment"}[role["role"]]
    beside = "" if role["baseline"] is None else f" ({role['baseline']:.0%})"
    ending = f", AER {error:.1%}" if role["role"] == "alignment" and error is not None else ""
    often = f"{role['value']:.0%}" if round(role["value"], 2) != MOSTLY else f"{role['value']:.1%}"  # half, or a little more?
    return f"{' '.join(filter(None, (what, role['what'])))} {often}{beside}{ending}"


def marks(head: dict[str, Any]) -> list[str]:
    return [*map(mark, head["roles"]), *(f"({mark(one)})" for one in head["leanings"])]


def draw(found: dict[str, Any], path: Path) -> None:
    """The grid of all heads as SVG, PNG or PDF."""
    from heedful.inspection.head_figures import Meaning, picture_of
    from heedful.inspection.plots import save

    cells = cells_of(found)
    save(picture_of(cells, Meaning(UNIT, shades(cells), explained(cells))), path)


def shades(cells: Sequence[Cell]) -> str:
    """What the colors say that occur."""
    from heedful.inspection.head_figures import figure

    gained = any(figure(cell.importance).startswith("-") for cell in cells)
    return "blue: lost without the head" + " · orange: gained" * gained


def cells_of(found: dict[str, Any]) -> list[Cell]:
    from heedful.inspection.head_figures import Cell

    return [Cell(head["kind"], head["layer"], head["head"], head["ablation"], marks(head)) for head in found["heads"]]


def explained(cells: Sequence[Cell]) -> str:
    """What the marks say that occur."""
    used = list(dict.fromkeys(one for cell in cells for one in cell.marks))
    plain = dict.fromkeys(one.strip("()") for one in used)
    mostly = ["in brackets: mostly"] if any(one.startswith("(") for one in used) else []
    return "where a head looks — " + " · ".join([*map(meaning, plain), *mostly]) if used else ""


def meaning(mark: str) -> str:
    """-1: the token before"""
    offset = re.fullmatch(r"([+-])(\d+)", mark)
    if offset:
        where = "before" if offset[1] == "-" else "after"
        return f"{mark}: the token {where}" if offset[2] == "1" else f"{mark}: {offset[2]} tokens {where}"
    relation, arrow, end = mark.partition("→")
    if arrow:
        return f"{mark}: the head of {relation}" if end == "h" else f"{mark}: the {relation} of a head"
    return {"itself": "itself: the same token", "rare": "rare: the rarest token", "align": "align: the word translated"}[mark]


def mark(role: dict[str, Any]) -> str:
    """A word that fits into a cell."""
    marks = {"positional": role["what"], "rare": "rare", "alignment": "align"}
    return str(marks.get(role["role"]) or role["what"].replace(" to head", "→h").replace(" to dependent", "→d"))
