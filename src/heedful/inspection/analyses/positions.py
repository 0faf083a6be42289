"""heed inspect RUN --positions: the run's positional encodings, and the loss beyond the training lengths.

scheme            kind     toeplitz  symmetry  distance corr.  beyond   index  order
encoder_position  vectors  0.0000    0.0000    -0.86           64% new  0.0    0.0%
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.drawing.position_figures import SchemeResult
    from heedful.inspection.report.blocks import Block
    from heedful.nn.positions import Position
    from heedful.tasks.predictor import Predictor

DISTANCES = 8  # columns of the table of similarities
SHIFTS = (1, 2, 5, 10)
PAIRS = 6  # pairs of dimensions whose rotation is shown, highest frequency first
MAX_POSITIONS = 64  # positions analyzed if the encoding has no limit
MIN_POSITIONS = 24  # to fit probes on
SENTENCES = 200  # of the validation data, by default
MAX_JOINED = 3  # sentences concatenated, at most
NO_SCHEME = "this model has no positional encoding"
ROTATION_LEGEND = "in parentheses: share of a pair's variance that the rotation does not explain, 0% for sinusoids."
DIAL_LEGEND = (
    "Dials: rotation of a pair of dimensions under a shift of k positions, fitted to the vectors. A hand is pale where the "
    "best rotation leaves a quarter of the variance or more unexplained."
)


def compute(worker: Predictor, *, sentences: int = SENTENCES) -> dict[str, Any]:

    from heedful.errors import ConfigError
    from heedful.inspection.measures.positions import schemes

    model, task = worker.model, worker.run.task.name
    lengths = compute_lengths(worker, sentences) if task == "translation" else None
    reached = worker.run.data.block if task == "language" else lengths["longest"] if lengths is not None else MAX_POSITIONS
    own = {name: analyze_scheme(scheme, reached) for name, scheme in add_sinusoidal(schemes(model)).items()}
    if not own and lengths is None:
        raise ConfigError(f"--positions: a model of family {worker.run.model.family!r} has no positional encoding")
    return {"reached": reached, "schemes": own, "lengths": lengths}


def add_sinusoidal(schemes: dict[str, Position]) -> dict[str, Position]:
    """Add sinusoidal vectors of the same size, for comparison with a learned table."""
    from heedful.nn.positions import Learned, Sinusoidal

    learned = [position for position in schemes.values() if isinstance(position, Learned) and not position.size.dim % 2]
    return schemes | {"(sinusoidal)": Sinusoidal(learned[-1].size)} if learned else schemes


def analyze_scheme(position: Position, reached: int) -> dict[str, Any]:
    """reached: the number of positions seen in training; learned positions beyond them are not analyzed."""
    from heedful.inspection.measures.position_shifts import recover_rotations, shift_error
    from heedful.inspection.measures.positions import by_distance, cosines, encoding, extrapolation, scores, shape_of, vectors
    from heedful.inspection.measures.probes import probe

    count = MAX_POSITIONS if position.limit is None else min(reached, position.limit)
    encoded, similarity = encoding(position, count), scores(position, count)
    result: dict[str, Any] = {
        "class": type(position).__name__,
        "kind": encoded.kind,
        "positions": count,
        "limit": position.limit,
        "first": encoded.first,
        "columns": encoded.columns,
        "encoding": [[round(value, 5) for value in row] for row in encoded.values.tolist()],
        "similarity": by_distance(similarity).tolist(),
        "shape": shape_of(similarity)._asdict(),
        "beyond": extrapolation(position, reached)._asdict() | {"asked": 2 * reached},
    }
    if encoded.kind == "vectors":
        import torch

        result["cosine"] = by_distance(cosines(similarity)).tolist()
        added = vectors(position, torch.arange(4 * MAX_POSITIONS if position.limit is None else count)).detach()
        if len(added) >= MIN_POSITIONS:
            result["probes"] = probe(added)._asdict() | {"positions": len(added)}
            result["shift_error"] = {str(shift): shift_error(added, shift) for shift in SHIFTS}
            result["turns"] = {
                str(shift): [one._asdict() for one in recover_rotations(added, shift)[:PAIRS]] for shift in SHIFTS
            }
    return result


def compute_lengths(worker: Predictor, sentences: int) -> dict[str, Any]:
    """Loss by length and by position, of validation sentences alone and concatenated."""
    from heedful.data.splits import splits_of
    from heedful.errors import HeedfulError
    from heedful.inspection.measures.lengths import by_length, by_position, join_neighbors, score_examples
    from heedful.tasks.translation.data import Examples, examples_of

    data = worker.run.data
    every = examples_of(splits_of(data).valid, data.max_ratio)
    examples = Examples(list(islice(every.sources, sentences)), list(islice(every.references, sentences)))
    alone = score_examples(worker.system, examples)
    longest = max(len(one.losses) for one in alone)
    result: dict[str, Any] = {"sentences": len(examples.sources), "longest": longest, "refused": None}
    concatenated = []
    for times in range(2, MAX_JOINED + 1):
        try:
            concatenated += score_examples(worker.system, join_neighbors(examples, times))
        except HeedfulError as error:
            result["refused"] = str(error.args[0])
            break
    width = -(-longest // 2)  # so that a bucket ends at the longest single sentence
    result["alone"] = [one._asdict() for one in by_length(alone, width)]
    result["joined"] = [one._asdict() for one in by_length(concatenated, width)]
    result["joined_by_position"] = [one._asdict() for one in by_position(concatenated, width)]
    return result


def format_text(result: dict[str, Any]) -> str:
    parts = [schemes_text(result["schemes"], result["reached"])] if result["schemes"] else [NO_SCHEME]
    if result["lengths"] is not None:
        parts.append(lengths_text(result["lengths"]))
    return "\n\n".join(parts)


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.drawing.position_figures import scheme_figures
    from heedful.inspection.report.blocks import Heading, Pictures, Table, Terms, Words, sentence

    schemes, lengths = merge_equal(result["schemes"]), result["lengths"]
    blocks: list[Block] = [] if schemes else [Words(f"{sentence(NO_SCHEME)}.")]
    if schemes:
        for name, data in figure_data(schemes).items():
            one = schemes[name]
            blocks += [Heading(f"{name}: {data.scheme}"), Pictures(scheme_figures(data))]
            blocks.append(Table(similarity_rows({"": one}), "similarity by distance"))
            rotations = [row[1:] for row in rotation_rows({"": one})]
            if rotations:
                legend = Words(sentence(ROTATION_LEGEND), "hint")
                blocks += [Words(DIAL_LEGEND, "hint"), Table(rotations, "rotation by shift"), legend]
        blocks += [Heading("Properties"), Table(scheme_rows(schemes), "positional encodings")]
        blocks.append(Terms(explain_columns(schemes, result["reached"])))
        blocks += [Words(sentence(text)) for text in (*explain_missing_probes(schemes), *list_errors(schemes))]
    if lengths is not None:
        header, notes = describe_lengths(lengths)
        blocks += [Heading("Loss by length"), Words(f"{header}."), Table(length_rows(lengths), "loss by length")]
        blocks += [Words(sentence(text), "hint") for text in notes]
    return blocks


def merge_equal(schemes: dict[str, Any]) -> dict[str, Any]:
    """Merge schemes with equal results under their joined names."""
    merged: list[tuple[list[str], dict[str, Any]]] = []
    for name, one in schemes.items():
        names = next((names for names, other in merged if one == other), None)
        if names is None:
            merged.append(([name], one))
        else:
            names.append(name)
    return {" and ".join(names): one for names, one in merged}


def schemes_text(schemes: dict[str, Any], reached: int) -> str:
    rotations = rotation_rows(schemes)
    rotation_text = f"\n{table(rotations)}\n{ROTATION_LEGEND}\n\n" if rotations else ""
    columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in explain_columns(schemes, reached).items()), 120)
    notes = [columns, *explain_missing_probes(schemes), *list_errors(schemes)]
    return f"{table(scheme_rows(schemes))}\n\n{table(similarity_rows(schemes))}\n{rotation_text}" + "\n".join(notes)


def scheme_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("scheme", "kind", "toeplitz", "symmetry", "distance corr.", "beyond", "index probe", "order probe")
    ]
    for name, one in schemes.items():
        shape, probes = one["shape"], one.get("probes")
        correlation = "-" if shape["distance_correlation"] is None else f"{shape['distance_correlation']:+.2f}"
        beyond = "error" if one["beyond"]["refused"] else f"{one['beyond']['unseen']:.0%} new"
        probe_errors = ("-", "-")
        if probes is not None:
            index = f"{probes['index_error']:.2f} of {probes['index_chance']:.0f}"
            probe_errors = index, f"{probes['order_error']:.1%}"
        errors = f"{shape['toeplitz_error']:.4f}", f"{shape['symmetry_error']:.4f}"
        rows.append((name, f"{one['class']}: {one['kind']}", *errors, correlation, beyond, *probe_errors))
    return rows


def similarity_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    def label(name: str, measure: str) -> str:
        return f"{name}, {measure}" if name else measure

    rows: list[tuple[str, ...]] = [("similarity by distance", *map(str, range(DISTANCES)))]
    for name, one in schemes.items():
        near = [f"{value:.4g}" for value in one["similarity"][:DISTANCES]]
        rows.append((label(name, "dot" if "cosine" in one else "score"), *near, *[""] * (DISTANCES - len(near))))
        if "cosine" in one:
            near = [f"{value:.4f}" for value in one["cosine"][:DISTANCES]]
            rows.append((label(name, "cosine"), *near, *[""] * (DISTANCES - len(near))))
    return rows


def rotation_rows(schemes: dict[str, Any]) -> list[tuple[str, ...]]:
    """The effect of a shift by k positions on the vectors, for schemes that add vectors to embeddings."""
    with_vectors = {name: one for name, one in schemes.items() if "turns" in one}
    rows: list[tuple[str, ...]] = [("scheme", "shift k", "unexplained", *(f"pair {pair} rotation" for pair in range(PAIRS)))]
    for name, one in with_vectors.items():
        for shift, pairs in one["turns"].items():
            degrees = [f"{turn['degrees']:.1f}° ({turn['missed']:.0%})" for turn in pairs]
            rows.append((name, shift, f"{one['shift_error'][shift]:.2g}", *degrees, *[""] * (PAIRS - len(degrees))))
    return rows if with_vectors else []


def explain_columns(schemes: dict[str, Any], reached: int) -> dict[str, str]:
    """The meaning of each column that has values."""
    has_probes = any("probes" in one for one in schemes.values())
    meanings = {
        "toeplitz, symmetry": "0 if similarity depends on the distance only",
        "distance corr.": "correlation of similarity with |i - j|",
        "beyond": f"share of values at the next {reached} positions outside the range of the {reached} positions of the data",
        "index probe": "mean error of a linear prediction of the position, and of always predicting the middle",
        "order probe": "share of pairs in the wrong order",
        "shift k": "variance that the best linear map from each position to the k-th after it leaves unexplained, and the "
        "rotation of single pairs of dimensions",
    }
    of_probes = () if has_probes else ("index probe", "order probe", "shift k")
    return {name: meaning for name, meaning in meanings.items() if name not in of_probes}


def explain_missing_probes(schemes: dict[str, Any]) -> list[str]:
    """The reason for each scheme without probes and shifts."""
    without = [name for name, one in schemes.items() if one["kind"] != "vectors"]
    few = [f"{name} has {one['positions']}" for name, one in schemes.items() if name not in without and "probes" not in one]
    reasons = [f"probes and shifts require vectors added to embeddings; there are none in: {', '.join(without)}."]
    return reasons * bool(without) + [f"probes and shifts require {MIN_POSITIONS} positions; {', '.join(few)}."] * bool(few)


def list_errors(schemes: dict[str, Any]) -> list[str]:
    return sorted({one["beyond"]["refused"] for one in schemes.values()} - {None})


def lengths_text(lengths: dict[str, Any]) -> str:
    header, notes = describe_lengths(lengths)
    return f"{header}\n{table(length_rows(lengths))}\n" + "\n".join(notes)


def describe_lengths(lengths: dict[str, Any]) -> tuple[str, list[str]]:
    """The header of the table, and the notes below it."""
    header = (
        f"{lengths['sentences']} sentences of the validation data, the longest of {lengths['longest']} target tokens; joined: "
        f"2 to {MAX_JOINED} of them concatenated"
    )
    note = (
        "the model was not trained on concatenated sentences: compare alone and joined at the same length, then joined below "
        f"and above {lengths['longest']} tokens."
    )
    return header, [note, *([f"longer inputs are not supported: {lengths['refused']}"] if lengths["refused"] else [])]


def length_rows(lengths: dict[str, Any]) -> list[tuple[str, ...]]:
    columns = [("alone", "sentences"), ("joined", "sentences"), ("joined_by_position", "tokens")]
    spans = {one["first"]: f"{one['first']}-{one['last']}" for name, _ in columns for one in lengths[name]}
    heads = [(f"{name}, {count}".replace("_", " "), "loss", "accuracy") for name, count in columns]
    rows: list[tuple[str, ...]] = [("target tokens", *(cell for head in heads for cell in head))]
    for first in sorted(spans):
        parts = [next((one for one in lengths[name] if one["first"] == first), None) for name, _ in columns]
        cells = [format_cells(one, count) for one, (_, count) in zip(parts, columns, strict=True)]
        rows.append((spans[first], *(cell for part in cells for cell in part)))
    return rows


def format_cells(one: dict[str, Any] | None, count: str) -> tuple[str, str, str]:
    return ("", "", "") if one is None else (f"{one[count]:,}", f"{one['loss']:.3f}", f"{one['accuracy']:.1%}")


def draw(result: dict[str, Any], path: Path) -> None:
    """Save every scheme's encoding, similarity and rotations as SVG, PNG or PDF."""
    from heedful.errors import ConfigError
    from heedful.inspection.drawing.plots import save
    from heedful.inspection.drawing.position_figures import position_figure

    if not result["schemes"]:
        raise ConfigError(f"--picture: {NO_SCHEME} to draw")
    save(position_figure(figure_data(result["schemes"])), path)


def figure_data(schemes: dict[str, Any]) -> dict[str, SchemeResult]:
    import torch

    from heedful.inspection.drawing.position_figures import SchemeResult
    from heedful.inspection.measures.position_shifts import PairRotation
    from heedful.inspection.measures.positions import Encoding

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
