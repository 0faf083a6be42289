"""heed inspect RUN --positions: what the run's position schemes say, and how the model fares past the lengths it knows.

scheme            kind     toeplitz  symmetry  with distance  unseen beyond  index  order
encoder_position  vectors  0.0000    0.0000    -0.86          64%            0.0    0.0%
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.position_figures import SchemeResult
    from heedful.inspection.report.blocks import Block
    from heedful.nn.positions import Position
    from heedful.predictor import Predictor

DISTANCES = 8  # shown in the table
SHIFTS = (1, 2, 5, 10)
PAIRS = 6  # of dimensions whose rotation is shown, the quickest first
MOST = 64  # positions that are looked at where there is no end of them
FEWEST = 24  # that probes are fitted on
SENTENCES = 200  # of the validation data
JOINED = 3  # sentences in a row, at most
NONE = "this model has no position scheme"
BRACKETS = "in brackets: the share of a pair's variance that its rotation misses, 0% for sinusoids."
DIALS = (
    "Dials: how a pair of dimensions turns when one goes on by so many positions, recovered from the vectors alone. A hand is "
    "pale where the nearest turn misses a quarter of their variance or more."
)


def found(worker: Predictor, *, sentences: int = SENTENCES) -> dict[str, Any]:
    from torch import nn

    from heedful.errors import ConfigError
    from heedful.inspection.positions import schemes

    model, task = worker.model, worker.run.task.name
    assert isinstance(model, nn.Module), "models are modules"
    lengths = lengths_found(worker, sentences) if task == "translation" else None
    reached = worker.run.data.block if task == "language" else lengths["longest"] if lengths is not None else MOST
    own = {name: scheme_found(scheme, reached) for name, scheme in beside_fixed(schemes(model)).items()}
    if not own and lengths is None:
        raise ConfigError(f"a model of family {worker.run.model.family!r} has no position scheme, and there is nothing to show")
    return {"reached": reached, "schemes": own, "lengths": lengths}


def beside_fixed(found: dict[str, Position]) -> dict[str, Position]:
    """After the last learned table the fixed vectors that could stand in its place."""
    from heedful.nn.positions import Learned, Sinusoidal

    learned = [position for position in found.values() if isinstance(position, Learned) and not position.size.dim % 2]
    return found | {"(fixed instead)": Sinusoidal(learned[-1].size)} if learned else found


def scheme_found(position: Position, reached: int) -> dict[str, Any]:
    """reached: how many positions training did; what is learned is not looked at beyond them."""
    from heedful.inspection.position_shifts import recover_rotations, shift_error
    from heedful.inspection.positions import by_distance, cosines, encoding, extrapolation, scores, shape_of, vectors
    from heedful.inspection.probes import probe

    count = MOST if position.limit is None else min(reached, position.limit)
    said, seen = encoding(position, count), scores(position, count)
    past = extrapolation(position, reached)
    result: dict[str, Any] = {
        "class": type(position).__name__,
        "kind": said.kind,
        "positions": count,
        "limit": position.limit,
        "first": said.first,
        "columns": said.columns,
        "encoding": [[round(value, 5) for value in row] for row in said.values.tolist()],
        "similarity": by_distance(seen).tolist(),
        "shape": shape_of(seen)._asdict(),
        "beyond": past._asdict() | {"asked": 2 * reached},
    }
    if said.kind == "vectors":
        import torch

        result["cosine"] = by_distance(cosines(seen)).tolist()
        added = vectors(position, torch.arange(4 * MOST if position.limit is None else count)).detach()
        if len(added) >= FEWEST:
            result["probes"] = probe(added)._asdict() | {"positions": len(added)}
            result["shift_error"] = {str(shift): shift_error(added, shift) for shift in SHIFTS}
            result["turns"] = {
                str(shift): [one._asdict() for one in recover_rotations(added, shift)[:PAIRS]] for shift in SHIFTS
            }
    return result


def lengths_found(worker: Predictor, sentences: int) -> dict[str, Any]:
    """Loss by length and by place, of the validation data as it is and with neighbors joined."""
    from heedful.build import examples_of
    from heedful.data.splits import splits_of
    from heedful.errors import HeedfulError
    from heedful.studies.lengths import by_length, by_position, join_neighbors, score_examples
    from heedful.tasks.evaluate_translations import Examples

    data = worker.run.data
    every = examples_of(splits_of(data).valid, data.max_ratio)
    examples = Examples(list(islice(every.sources, sentences)), list(islice(every.references, sentences)))
    alone = score_examples(worker.system, examples)
    longest = max(len(one.losses) for one in alone)
    result: dict[str, Any] = {"sentences": len(examples.sources), "longest": longest, "refused": None}
    together = []
    for times in range(2, JOINED + 1):
        try:
            together += score_examples(worker.system, join_neighbors(examples, times))
        except HeedfulError as refusal:
            result["refused"] = str(refusal.args[0])
            break
    width = -(-longest // 2)  # so that a bucket ends where the known lengths do
    result["alone"] = [one._asdict() for one in by_length(alone, width)]
    result["joined"] = [one._asdict() for one in by_length(together, width)]
    result["joined_by_position"] = [one._asdict() for one in by_position(together, width)]
    return result


def as_text(found: dict[str, Any]) -> str:
    parts = [schemes_text(found["schemes"], found["reached"])] if found["schemes"] else [NONE]
    if found["lengths"] is not None:
        parts.append(lengths_text(found["lengths"]))
    return "\n\n".join(parts)


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.inspection.position_figures import scheme_figures
    from heedful.inspection.report.blocks import Heading, Pictures, Table, Terms, Words, sentence

    schemes, lengths = equal_ones_together(found["schemes"]), found["lengths"]
    blocks: list[Block] = [] if schemes else [Words(f"{sentence(NONE)}.")]
    if schemes:
        for name, drawn in drawn_of(schemes).items():
            one = schemes[name]
            blocks += [Heading(f"{name}: {drawn.scheme}"), Pictures(scheme_figures(drawn))]
            blocks.append(Table(similar_rows({"": one}), "similarity by distance"))
            turning = [row[1:] for row in turns_rows({"": one})]
            blocks += [Words(DIALS, "hint"), Table(turning, "going on"), Words(sentence(BRACKETS), "hint")] if turning else []
        blocks += [Heading("What the schemes are like"), Table(scheme_rows(schemes), "position schemes")]
        blocks.append(Terms(meanings(schemes, found["reached"])))
        blocks += [Words(sentence(text)) for text in (*unprobed(schemes), *refusals(schemes))]
    if lengths is not None:
        over, after = about_lengths(lengths)
        blocks += [Heading("Past the lengths it knows"), Words(f"{over}."), Table(lengths_rows(lengths), "loss by length")]
        blocks += [Words(sentence(text), "hint") for text in after]
    return blocks


def equal_ones_together(schemes: dict[str, Any]) -> dict[str, Any]:
    """Those of which the same was found, by all their names."""
    found: list[tuple[list[str], dict[str, Any]]] = []
    for name, one in schemes.items():
        names = next((names for names, other in found if one == other), None)
        if names is None:
            found.append(([name], one))
        else:
            names.append(name)
    return {" and ".join(names): one for names, one in found}


def schemes_text(schemes: dict[str, Any], reached: int) -> str:
    turning = turns_rows(schemes)
    turned = f"\n{table(turning)}\n{BRACKETS}\n\n" if turning else ""
    columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in meanings(schemes, reached).items()), 120)
    told = [columns, *unprobed(schemes), *refusals(schemes)]
    return f"{table(scheme_rows(schemes))}\n\n{table(similar_rows(schemes))}\n{turned}" + "\n".join(told)


def scheme_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("scheme", "what", "toeplitz", "symmetry", "with distance", "beyond", "index probe", "order probe")
    ]
    for name, one in schemes.items():
        shape, probes = one["shape"], one.get("probes")
        tied = "-" if shape["distance_correlation"] is None else f"{shape['distance_correlation']:+.2f}"
        past = "refused" if one["beyond"]["refused"] else f"{one['beyond']['unseen']:.0%} new"
        read = ("-", "-")
        if probes is not None:
            index = f"{probes['index_error']:.2f} of {probes['index_chance']:.0f}"
            read = index, f"{probes['order_error']:.1%}"
        errors = f"{shape['toeplitz_error']:.4f}", f"{shape['symmetry_error']:.4f}"
        rows.append((name, f"{one['class']}: {one['kind']}", *errors, tied, past, *read))
    return rows


def similar_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    def told(name: str, what: str) -> str:
        return f"{name}, {what}" if name else what

    rows: list[tuple[str, ...]] = [("similarity by distance", *map(str, range(DISTANCES)))]
    for name, one in schemes.items():
        near = [f"{value:.4g}" for value in one["similarity"][:DISTANCES]]
        rows.append((told(name, "dot" if "cosine" in one else "score"), *near, *[""] * (DISTANCES - len(near))))
        if "cosine" in one:
            near = [f"{value:.4f}" for value in one["cosine"][:DISTANCES]]
            rows.append((told(name, "cosine"), *near, *[""] * (DISTANCES - len(near))))
    return rows


def turns_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    """What going on by k positions does to the vectors, where some are added."""
    told = {name: one for name, one in schemes.items() if "turns" in one}
    rows: list[tuple[str, ...]] = [
        ("scheme", "going on by", "missed by any map", *(f"pair {pair} turns" for pair in range(PAIRS)))
    ]
    for name, one in told.items():
        for shift, pairs in one["turns"].items():
            degrees = [f"{turn['degrees']:.1f}° ({turn['missed']:.0%})" for turn in pairs]
            rows.append((name, shift, f"{one['shift_error'][shift]:.2g}", *degrees, *[""] * (PAIRS - len(degrees))))
    return rows if told else []


def meanings(schemes: dict[str, Any], reached: int) -> dict[str, str]:
    """Of the columns that say something."""
    probed = any("probes" in one for one in schemes.values())
    every = {
        "toeplitz, symmetry": "0 where only the distance counts",
        "with distance": "correlation of similarity with |i - j|",
        "beyond": f"at {reached} positions past the first {reached}, which data reached, numbers outside their range",
        "index probe": "mean error of a linear guess of the position, and of guessing the middle",
        "order probe": "pairs judged wrongly",
        "going on by k": "variance missed by the best linear map from each position to the k-th after it, and the rotation of "
        "single pairs of dimensions",
    }
    of_probes = () if probed else ("index probe", "order probe", "going on by k")
    return {name: meaning for name, meaning in every.items() if name not in of_probes}


def unprobed(schemes: dict[str, Any]) -> list[str]:
    """Why there are no probes and no shifts, where there are none."""
    without = [name for name, one in schemes.items() if one["kind"] != "vectors"]
    few = [f"{name} has {one['positions']}" for name, one in schemes.items() if name not in without and "probes" not in one]
    told = [f"probes and shifts are of vectors that are added to words; there are none in: {', '.join(without)}."]
    return told * bool(without) + [f"probes and shifts need {FEWEST} positions; {', '.join(few)}."] * bool(few)


def refusals(schemes: dict[str, Any]) -> list[str]:
    return sorted({one["beyond"]["refused"] for one in schemes.values()} - {None})


def lengths_text(lengths: dict[str, Any]) -> str:
    over, after = about_lengths(lengths)
    return f"{over}\n{table(lengths_rows(lengths))}\n" + "\n".join(after)


def about_lengths(lengths: dict[str, Any]) -> tuple[str, list[str]]:
    """What stands before the table, and what after it."""
    over = (
        f"{lengths['sentences']} sentences of the validation data, the longest of {lengths['longest']} target tokens; joined: "
        f"2 to {JOINED} of them in a row"
    )
    compare = (
        "sentences in a row are new to the model besides being long: compare alone and joined of one length, then joined "
        f"before and after {lengths['longest']}."
    )
    return over, [compare, *([f"longer ones are refused: {lengths['refused']}"] if lengths["refused"] else [])]


def lengths_rows(lengths: dict[str, Any]) -> list[tuple[str, ...]]:
    columns = [("alone", "sentences"), ("joined", "sentences"), ("joined_by_position", "tokens")]
    spans = {one["first"]: f"{one['first']}-{one['last']}" for name, _ in columns for one in lengths[name]}
    heads = [(f"{name}, {count}".replace("_", " "), "loss", "accuracy") for name, count in columns]
    rows: list[tuple[str, ...]] = [("target tokens", *(cell for head in heads for cell in head))]
    for first in sorted(spans):
        parts = [next((one for one in lengths[name] if one["first"] == first), None) for name, _ in columns]
        told = [cells(one, count) for one, (_, count) in zip(parts, columns, strict=True)]
        rows.append((spans[first], *(cell for part in told for cell in part)))
    return rows


def cells(one: dict[str, Any] | None, count: str) -> tuple[str, str, str]:
    return ("", "", "") if one is None else (f"{one[count]:,}", f"{one['loss']:.3f}", f"{one['accuracy']:.1%}")


def draw(found: dict[str, Any], path: Path) -> None:
    """Every scheme's encoding, similarity and turns as SVG, PNG or PDF."""
    from heedful.errors import ConfigError
    from heedful.inspection.plots import save
    from heedful.inspection.position_figures import position_figure

    if not found["schemes"]:
        raise ConfigError("this model has no position scheme, so there is none to draw")
    save(position_figure(drawn_of(found["schemes"])), path)


def drawn_of(schemes: dict[str, Any]) -> dict[str, SchemeResult]:
    import torch

    from heedful.inspection.position_figures import SchemeResult
    from heedful.inspection.position_shifts import PairRotation
    from heedful.inspection.positions import Encoding

    return {
        name: SchemeResult(
            Encoding(one["kind"], torch.tensor(one["encoding"]), one["first"], one["columns"]),
            torch.tensor(one["similarity"]),
            one["class"].lower(),
            {
                shift: [PairRotation(**turn) for turn in recover_rotations]
                for shift, recover_rotations in one.get("turns", {}).items()
            },
        )
        for name, one in schemes.items()
    }
