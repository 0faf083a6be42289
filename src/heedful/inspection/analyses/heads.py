"""heed inspect RUN --heads: role and importance of every head, as a table and as a picture.

kind     layer  head  confidence  gradient  ablation  relevance  role
encoder  0      0     0.94        0.41      +0.0213   0.22       position -1 96%
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from heedful.cli.output import progress, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from heedful.inspection.drawing.head_figures import Cell
    from heedful.inspection.measures.head_samples import Sample
    from heedful.inspection.measures.head_statistics import Frequencies
    from heedful.inspection.report.blocks import Block
    from heedful.tasks.predictor import Predictor
    from heedful.text.tokenizer import Tokenizer

FREQUENCY_LINES = 20_000  # lines of training text from which token frequencies are counted
UNIT = "nats per token"
NO_RELEVANCE = "relevance: not defined for this family, which has layers that do not propagate it."
COLUMNS = {
    "confidence": "mean of the largest attention weight",
    "gradient": "|dL/dgate|, normalized to length 1 within a layer",
    "ablation": "increase of the loss without the head, in nats per token",
    "relevance": "share of the layer's relevance that flows through the head",
    "role": "share of tokens whose largest weight is there (in parentheses: of the best fixed offset)",
}


def compute(
    worker: Predictor, *, data: Path | None = None, conllu: Path | None = None, sentences: int = 200, json: bool = False
) -> dict[str, Any]:
    """data: lines of source TAB target TAB alignment, the last two optional; default: the run's validation data. json: show
    no progress bar."""
    from heedful.errors import ConfigError, DataError
    from heedful.inspection.measures.head_importance import study
    from heedful.inspection.measures.head_samples import fill_targets, pairs_of, texts_of

    task = worker.run.task.name
    if task not in ("translation", "language"):
        raise ConfigError(f"--heads: given a run of task {task!r}, expected a run of: translation, language")
    if data is not None and conllu is not None:
        raise ConfigError("given both --data and --conllu, expected one of them")
    samples = list(islice(read_samples(worker, data, conllu), sentences))
    if task == "language":
        pairs = texts_of(worker.system, samples)
    else:
        pairs = pairs_of(worker.system, fill_targets(worker.system, samples, worker.search_config()))
    if not pairs:
        raise DataError(
            f"none of the {len(samples)} sentences can be analyzed: each is empty, longer than "
            f"{worker.system.max_length} tokens, or has a token that spans two words",
            hint="use sentences like those of the training data",
        )
    frequencies, counted = count_tokens(worker, samples)
    with progress(f"heads, {len(pairs):,} sentences", quiet=json) as advance:
        statistics = study(worker.system, pairs, frequencies, advance)
    return {
        "corpus": str(conllu or data or "the run's validation data"),
        "sentences": len(pairs),
        "left_out": len(samples) - len(pairs),
        "loss": statistics.loss,
        "frequencies": counted,
        "heads": [head_to_dict(head) for head in statistics.heads],
    }


def read_samples(worker: Predictor, data: Path | None, conllu: Path | None) -> Iterator[Sample]:
    from heedful.data.conllu import read_trees
    from heedful.data.input_lines import read_texts
    from heedful.inspection.measures.head_samples import Sample, from_grammar, from_lines, from_trees

    if conllu is not None:
        yield from from_trees(read_trees(conllu))
    elif data is not None:
        yield from from_lines(read_texts(data), str(data))
    elif worker.run.task.name == "language":
        from heedful.data.corpus_text import passages, read_passage

        for passage in passages(worker.run.data, "valid"):
            yield from (Sample(line) for line in read_passage(passage) if line.strip())
    else:
        from heedful.data.grammar import generate
        from heedful.data.pairs import pairs
        from heedful.data.splits import splits_of

        for corpus in splits_of(worker.run.data).valid:
            if corpus.builtin:
                yield from from_grammar(generate(corpus.split or "train", corpus.count or 0, corpus.seed or 0))  # type: ignore[arg-type]
            else:
                yield from (Sample(one.source, one.target) for one in pairs(corpus, max_ratio=worker.run.data.max_ratio))


def count_tokens(worker: Predictor, samples: Iterable[Sample]) -> tuple[Frequencies, str]:
    """Token frequencies of the training text, or of the samples if that is missing; and a description of the text counted."""
    from heedful.errors import DataError
    from heedful.inspection.measures.head_samples import frequencies_in
    from heedful.tasks import find_task

    tokenizers: dict[Literal["source", "target"], Tokenizer] = {
        "source": worker.system.source_tokenizer,
        "target": worker.system.target_tokenizer,
    }
    data = find_task(worker.run.task.name).data(worker.run)
    try:
        lines = {side: list(islice(data.lines(side), FREQUENCY_LINES)) for side in tokenizers}
        counted = f"the first {max(map(len, lines.values())):,} lines of the training text"
    except DataError:
        lines = {"source": [one.source for one in samples], "target": [one.target or one.source for one in samples]}
        counted = "these sentences, because the training text is missing"
    return {side: frequencies_in(tokenizer, lines[side]) for side, tokenizer in tokenizers.items()}, counted


def head_to_dict(head: Any) -> dict[str, Any]:
    kept = {name: value for name, value in head._asdict().items() if name != "measures"}
    return kept | {
        "roles": [one._asdict() for one in head.roles],
        "leanings": [one._asdict() for one in head.tendencies],
        "measures": [one._asdict() for one in head.measures],
    }


def format_text(result: dict[str, Any]) -> str:
    columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in used_columns(result).items()), 120)
    return "\n".join([format_header(result), table(head_rows(result)), columns, *remarks(result)])


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.drawing.head_figures import grids
    from heedful.inspection.report.blocks import Pictures, Table, Terms, Words, sentence

    cells, rows = head_cells(result), head_rows(result)
    caption = ". ".join(
        sentence(text) for text in (f"{explain_colors(cells)} (square-root scale)", explain_marks(cells)) if text
    )
    return [
        Words(f"{format_header(result)}."),
        Pictures(grids(cells, UNIT), f"{caption}."),
        Table(rows, "all heads"),
        Terms(used_columns(result)),
        *(Words(sentence(text), "hint") for text in remarks(result)),
    ]


def format_header(result: dict[str, Any]) -> str:
    left = f", {result['left_out']:,} left out" if result["left_out"] else ""
    return f"{result['sentences']:,} sentences of {result['corpus']}{left}; loss {result['loss']:.4f} nats per token"


def head_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    columns = used_columns(result)
    rows: list[tuple[str, ...]] = [("kind", "layer", "head", *columns)]
    for head in result["heads"]:
        confidence, relevance = ("" if head[name] is None else f"{head[name]:.2f}" for name in ("confidence", "relevance"))
        name = head["kind"], str(head["layer"]), str(head["head"])
        importance = f"{head['share']:.2f}", f"{head['ablation']:+.4f}", *([relevance] if "relevance" in columns else [])
        roles = [format_role(role, head["alignment_error"]) for role in head["roles"]]
        roles += [f"mostly {format_role(role, None)}" for role in head["leanings"]]
        rows.append((*name, confidence, *importance, ", ".join(roles) or "-"))
    return rows


def used_columns(result: dict[str, Any]) -> dict[str, str]:
    """The columns that have values, each with its meaning."""
    has_relevance = any(head["relevance"] is not None for head in result["heads"])
    return {name: meaning for name, meaning in COLUMNS.items() if has_relevance or name != "relevance"}


def remarks(result: dict[str, Any]) -> list[str]:
    """How rare tokens were counted, if a head attends to them; and whether relevance is undefined."""
    has_rare = any(role["role"] == "rare" for head in result["heads"] for role in head["roles"])
    rare = [f"rare: by token frequency in {result['frequencies']}."] if has_rare else []
    return rare + ([] if "relevance" in used_columns(result) else [NO_RELEVANCE])


def format_role(role: dict[str, Any], error: float | None) -> str:
    from heedful.inspection.measures.roles import MOSTLY

    name = {"positional": "position", "syntactic": "", "rare": "rare", "alignment": "alignment"}[role["role"]]
    baseline = "" if role["baseline"] is None else f" ({role['baseline']:.0%})"
    aer = f", AER {error:.1%}" if role["role"] == "alignment" and error is not None else ""
    share = f"{role['value']:.0%}" if round(role["value"], 2) != MOSTLY else f"{role['value']:.1%}"  # 50.4% is not 50%
    return f"{' '.join(filter(None, (name, role['what'])))} {share}{baseline}{aer}"


def head_marks(head: dict[str, Any]) -> list[str]:
    return [*map(short_role, head["roles"]), *(f"({short_role(one)})" for one in head["leanings"])]


def draw(result: dict[str, Any], path: Path) -> None:
    """Save the grid of all heads as SVG, PNG or PDF."""
    from heedful.inspection.drawing.head_figures import Legend, head_figure
    from heedful.inspection.drawing.plots import save

    cells = head_cells(result)
    save(head_figure(cells, Legend(UNIT, explain_colors(cells), explain_marks(cells))), path)


def explain_colors(cells: Sequence[Cell]) -> str:
    """The legend of the colors that occur."""
    from heedful.inspection.drawing.head_figures import format_importance

    has_negative = any(format_importance(cell.importance).startswith("-") for cell in cells)
    return "blue: loss increases without the head" + " · orange: loss decreases" * has_negative


def head_cells(result: dict[str, Any]) -> list[Cell]:
    from heedful.inspection.drawing.head_figures import Cell

    return [Cell(head["kind"], head["layer"], head["head"], head["ablation"], head_marks(head)) for head in result["heads"]]


def explain_marks(cells: Sequence[Cell]) -> str:
    """The legend of the marks that occur."""
    used = list(dict.fromkeys(mark for cell in cells for mark in cell.marks))
    plain = dict.fromkeys(mark.strip("()") for mark in used)
    mostly = ["in parentheses: mostly"] if any(mark.startswith("(") for mark in used) else []
    return "attends to — " + " · ".join([*map(explain_mark, plain), *mostly]) if used else ""


def explain_mark(mark: str) -> str:
    """-1: the previous token"""
    offset = re.fullmatch(r"([+-])(\d+)", mark)
    if offset:
        if offset[2] == "1":
            return f"{mark}: the {'previous' if offset[1] == '-' else 'next'} token"
        return f"{mark}: {offset[2]} tokens {'before' if offset[1] == '-' else 'after'}"
    relation, arrow, end = mark.partition("→")
    if arrow:
        return f"{mark}: the syntactic head of {relation}" if end == "h" else f"{mark}: the {relation} of a syntactic head"
    return {"itself": "itself: the same token", "rare": "rare: the rarest token", "align": "align: the aligned word"}[mark]


def short_role(role: dict[str, Any]) -> str:
    """A role as a short mark that fits into a cell."""
    marks = {"positional": role["what"], "rare": "rare", "alignment": "align"}
    return str(marks.get(role["role"]) or role["what"].replace(" to head", "→h").replace(" to dependent", "→d"))
