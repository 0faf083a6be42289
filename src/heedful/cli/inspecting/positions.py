"""heed inspect RUN --positions: what the run's position schemes say, and how the model fares past the lengths it knows.

scheme            kind     toeplitz  symmetry  with distance  unseen beyond  index  order
encoder_position  vectors  0.0000    0.0000    -0.86          64%            0.0    0.0%
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.nn.positions import Position
    from heedful.worker import Worker

DISTANCES = 8  # shown in the table
SHIFTS = (1, 2, 5, 10)
PAIRS = 6  # of dimensions whose rotation is shown, the quickest first
MOST = 64  # positions that are looked at where there is no end of them
FEWEST = 24  # that probes are fitted on
SENTENCES = 200  # of the validation data
JOINED = 3  # sentences in a row, at most


def found(worker: Worker, *, sentences: int = SENTENCES) -> dict[str, Any]:
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
    from heedful.inspection.positions import beyond, by_distance, cosines, encoding, scores, shape_of, vectors
    from heedful.inspection.probes import probe
    from heedful.inspection.shifts import shift_error, turns

    count = MOST if position.limit is None else min(reached, position.limit)
    said, seen = encoding(position, count), scores(position, count)
    past = beyond(position, reached)
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
            result["turns"] = {str(shift): [one._asdict() for one in turns(added, shift)[:PAIRS]] for shift in SHIFTS}
    return result


def lengths_found(worker: Worker, sentences: int) -> dict[str, Any]:
    """Loss by length and by place, of the validation data as it is and with neighbours joined."""
    from heedful.build import examples_of
    from heedful.data.splits import splits_of
    from heedful.errors import HeedfulError
    from heedful.studies.lengths import by_length, by_position, joined, judge
    from heedful.tasks.evaluating import Examples

    data = worker.run.data
    every = examples_of(splits_of(data).valid, data.max_ratio)
    examples = Examples(list(islice(every.sources, sentences)), list(islice(every.references, sentences)))
    alone = judge(worker.system, examples)
    longest = max(len(one.losses) for one in alone)
    result: dict[str, Any] = {"sentences": len(examples.sources), "longest": longest, "refused": None}
    together = []
    for times in range(2, JOINED + 1):
        try:
            together += judge(worker.system, joined(examples, times))
        except HeedfulError as refusal:
            result["refused"] = str(refusal.args[0])
            break
    width = -(-longest // 2)  # so that a bucket ends where the known lengths do
    result["alone"] = [one._asdict() for one in by_length(alone, width)]
    result["joined"] = [one._asdict() for one in by_length(together, width)]
    result["joined_by_position"] = [one._asdict() for one in by_position(together, width)]
    return result


def as_text(found: dict[str, Any]) -> str:
    parts = [schemes_text(found["schemes"], found["reached"])] if found["schemes"] else ["this model has no position scheme"]
    if found["lengths"] is not None:
        parts.append(lengths_text(found["lengths"]))
    return "\n\n".join(parts)


def schemes_text(schemes: dict[str, Any], reached: int) -> str:
    rows = [("scheme", "what", "toeplitz", "symmetry", "with distance", "beyond", "index probe", "order probe")]
    similar = [("similarity by distance", *map(str, range(DISTANCES)))]
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
        near = [f"{value:.4g}" for value in one["similarity"][:DISTANCES]]
        similar.append((f"{name}, {'dot' if 'cosine' in one else 'score'}", *near, *[""] * (DISTANCES - len(near))))
        if "cosine" in one:
            near = [f"{value:.4f}" for value in one["cosine"][:DISTANCES]]
            similar.append((f"{name}, cosine", *near, *[""] * (DISTANCES - len(near))))
    refusals = {one["beyond"]["refused"] for one in schemes.values()} - {None}
    return (
        f"{table(rows)}\n\n{table(similar)}\n{turns_text(schemes)}"
        "toeplitz, symmetry: 0 where only the distance counts. with distance: correlation of similarity with |i - j|.\n"
        f"beyond: at {reached} positions past the first {reached}, which data reached, numbers outside their range.\n"
        "index probe: mean error of a linear guess of the position, and of guessing the middle; order probe: pairs judged\n"
        "wrongly; going on by k: variance missed by the best linear map from each position to the k-th after it, and the\n"
        f"rotation of single pairs of dimensions. Probes and shifts need {FEWEST} positions."
        + "".join(f"\n{one}" for one in refusals)
    )


def turns_text(schemes: dict[str, Any]) -> str:
    """What going on by k positions does to the vectors, where some are added."""
    told = {name: one for name, one in schemes.items() if "turns" in one}
    if not told:
        return ""
    rows = [("scheme", "going on by", "missed by any map", *(f"pair {pair} turns" for pair in range(PAIRS)))]
    for name, one in told.items():
        for shift, pairs in one["turns"].items():
            degrees = [f"{turn['degrees']:.1f}° ({turn['missed']:.0%})" for turn in pairs]
            rows.append((name, shift, f"{one['shift_error'][shift]:.2g}", *degrees, *[""] * (PAIRS - len(degrees))))
    return f"\n{table(rows)}\nin brackets: the share of a pair's variance that its rotation misses, 0% for sinusoids.\n\n"


def lengths_text(lengths: dict[str, Any]) -> str:
    columns = [("alone", "sentences"), ("joined", "sentences"), ("joined_by_position", "tokens")]
    spans = {one["first"]: f"{one['first']}-{one['last']}" for name, _ in columns for one in lengths[name]}
    heads = [(f"{name}, {count}".replace("_", " "), "loss", "accuracy") for name, count in columns]
    rows = [("target tokens", *(cell for head in heads for cell in head))]
    for first in sorted(spans):
        parts = [next((one for one in lengths[name] if one["first"] == first), None) for name, _ in columns]
        told = [cells(one, count) for one, (_, count) in zip(parts, columns, strict=True)]
        rows.append((spans[first], *(cell for part in told for cell in part)))
    note = f"\nlonger ones are refused: {lengths['refused']}" if lengths["refused"] else ""
    return (
        f"{lengths['sentences']} sentences of the validation data, the longest of {lengths['longest']} target tokens; joined: "
        f"2 to {JOINED} of them in a row\n{table(rows)}\n"
        "sentences in a row are new to the model besides being long: compare alone and joined of one length, then joined "
        f"before and after {lengths['longest']}.{note}"
    )


def cells(one: dict[str, Any] | None, count: str) -> tuple[str, str, str]:
    return ("", "", "") if one is None else (f"{one[count]:,}", f"{one['loss']:.3f}", f"{one['accuracy']:.1%}")


def draw(found: dict[str, Any], path: Path) -> None:
    """Every scheme's encoding and similarity as PNG, SVG or PDF."""
    import torch

    from heedful.errors import ConfigError
    from heedful.inspection.position_pictures import Drawn, draw_positions
    from heedful.inspection.positions import Encoding

    if not found["schemes"]:
        raise ConfigError("this model has no position scheme, so there is none to draw")
    drawn = {
        name: Drawn(
            Encoding(one["kind"], torch.tensor(one["encoding"]), one["first"], one["columns"]),
            torch.tensor(one["similarity"]),
            one["class"].lower(),
        )
        for name, one in found["schemes"].items()
    }
    draw_positions(drawn, path)
