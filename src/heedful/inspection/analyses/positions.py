"""The positional encodings of a model, and the loss beyond the training lengths.

scheme            kind                 toeplitz  symmetry  distance corr.  beyond   index probe  order probe
encoder_position  Sinusoidal: vectors  0.0000    0.0000    -0.86           64% new  0.0          0.0%
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import fill
from typing import Any, ClassVar

import torch
from torch import Tensor

from heedful.errors import ConfigError, HeedfulError
from heedful.evaluation.tables import table
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.position_figures import SchemeResult, position_figure, scheme_figures
from heedful.inspection.measures.lengths import Bucket, by_length, by_position, join_neighbors, score_examples
from heedful.inspection.measures.position_shifts import PairRotation, recover_rotations, shift_error
from heedful.inspection.measures.positions import (
    Encoding,
    Extrapolation,
    Shape,
    by_distance,
    by_grid_distance,
    by_row_and_column,
    cosines,
    encoding,
    extrapolation,
    of_patches,
    schemes,
    scores,
    shape_of,
    vectors,
)
from heedful.inspection.measures.probes import Probes, probe
from heedful.inspection.page.blocks import Block, Heading, Pictures, Table, Terms, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.patches import PatchSinusoids
from heedful.nn.positions import Learned, PatchGrid, Position, Sinusoidal
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.data import Examples

DISTANCES = 8  # columns of the table of similarities
SHIFTS = (1, 2, 5, 10)
PAIRS = 6  # pairs of dimensions whose rotation is shown, highest frequency first
MAX_POSITIONS = 64  # positions analyzed if the encoding has no limit
MIN_POSITIONS = 24  # to fit probes on
SENTENCES = 200  # of the validation data
MAX_JOINED = 3  # sentences concatenated, at most
NO_SCHEME = "this model has no positional encoding"
ROTATION_LEGEND = "in parentheses: share of a pair's variance that the rotation does not explain, 0% for sinusoids."
PATCHES_LEGEND = (
    "Distance between patches: the root of rows² + columns², rounded. Rows and columns are shown where patches of the same row "
    "or of the same column are more similar than others."
)
DIAL_LEGEND = (
    "Dials: rotation of a pair of dimensions under a shift of k positions, fitted to the vectors. A hand is pale where the "
    "best rotation leaves a quarter of the variance or more unexplained."
)


@dataclass(frozen=True)
class VectorProbes:
    """Probes and shifts of position vectors."""

    positions: int  # that they are fitted on
    probes: Probes
    shift_errors: dict[int, float]  # shift -> share of the variance that the best linear map leaves unexplained
    rotations: dict[int, list[PairRotation]]  # shift -> rotation of the first pairs of dimensions


@dataclass(frozen=True, eq=False)
class PositionScheme:
    """One positional encoding of a model."""

    scheme: str  # name of its class
    positions: int  # analyzed
    limit: int | None  # positions that it has; None: unlimited
    encoding: Encoding
    scores: Tensor  # (position, position), of tokens that differ only in position
    similarity: list[float]  # the same by distance
    cosine: list[float] | None  # the same; None: no vectors are added
    shape: Shape
    beyond: Extrapolation
    vectors: VectorProbes | None  # None: no vectors are added, or too few, or they are of patches
    patches: Tensor | None = None  # (down, across): similarity of patches r rows and c columns apart; None: a sequence

    def to_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "class": self.scheme,
            "kind": self.encoding.kind,
            "positions": self.positions,
            "limit": self.limit,
            "first": self.encoding.first,
            "columns": self.encoding.columns,
            "encoding": rounded(self.encoding.values),
            "scores": rounded(self.scores),
            "cosines": None if self.cosine is None else rounded(cosines(self.scores)),
            "similarity": self.similarity,
            "cosine": self.cosine,
            "shape": self.shape._asdict(),
            "beyond": self.beyond._asdict(),
            "probes": None,
            "shift_error": None,
            "rotations": None,
            "patches": None if self.patches is None else rounded(self.patches),
        }
        if self.vectors is not None:
            result["probes"] = self.vectors.probes._asdict() | {"positions": self.vectors.positions}
            result["shift_error"] = {str(shift): error for shift, error in self.vectors.shift_errors.items()}
            rotations = self.vectors.rotations.items()
            result["rotations"] = {str(shift): [one._asdict() for one in pairs] for shift, pairs in rotations}
        return result

    @property
    def drawing(self) -> SchemeResult:
        rotations = {} if self.vectors is None else {str(shift): pairs for shift, pairs in self.vectors.rotations.items()}
        return SchemeResult(self.encoding, torch.tensor(self.similarity), self.scheme.lower(), rotations, self.patches)


@dataclass(frozen=True)
class LengthLosses:
    """Loss by length and by position, of validation sentences alone and concatenated."""

    sentences: int
    longest: int  # target tokens
    refused: str | None  # the error for longer inputs, where the model does not support them
    alone: list[Bucket]
    joined: list[Bucket]
    joined_by_position: list[Bucket]

    def to_dict(self) -> dict[str, Any]:
        buckets = {"alone": self.alone, "joined": self.joined, "joined_by_position": self.joined_by_position}
        numbers = {"sentences": self.sentences, "longest": self.longest, "refused": self.refused}
        return numbers | {name: [one._asdict() for one in several] for name, several in buckets.items()}

    def rows(self) -> list[tuple[str, ...]]:
        columns = {"alone, sentences": self.alone, "joined, sentences": self.joined}
        columns["joined by position, tokens"] = self.joined_by_position
        spans = {one.first: f"{one.first}-{one.last}" for several in columns.values() for one in several}
        rows: list[tuple[str, ...]] = [
            ("target tokens", *(cell for name in columns for cell in (name, "loss", "accuracy"))),
        ]
        for first in sorted(spans):
            cells: list[str] = []
            for name, several in columns.items():
                found = next((one for one in several if one.first == first), None)
                cells += format_bucket(found, "tokens" if name.endswith("tokens") else "sentences")
            rows.append((spans[first], *cells))
        return rows

    @property
    def header(self) -> str:
        return (
            f"{self.sentences} sentences of the validation data, the longest of {self.longest} target tokens; joined: "
            f"2 to {MAX_JOINED} of them concatenated"
        )

    @property
    def notes(self) -> list[str]:
        note = (
            "the model was not trained on concatenated sentences: compare alone and joined at the same length, then joined "
            f"below and above {self.longest} tokens."
        )
        return [note, *([f"longer inputs are not supported: {self.refused}"] if self.refused else [])]


@dataclass(frozen=True, eq=False)
class PositionsResult(Result):
    """The result of `positions`.

    >>> result = heedful.inspection.positions(translator, sentences=5)
    >>> list(result.schemes)
    ['encoder_position', 'decoder_position']
    """

    analysis: ClassVar[str] = "positions"

    reached: int  # positions seen in training
    schemes: dict[str, PositionScheme]  # by path in the model; (sinusoidal): for comparison with a learned table
    lengths: LengthLosses | None  # None: the task has no sentence pairs

    @property
    def title(self) -> str:
        return "Positional encodings"

    def to_dict(self) -> dict[str, Any]:
        return {
            "reached": self.reached,
            "schemes": {name: scheme.to_dict() for name, scheme in self.schemes.items()},
            "lengths": None if self.lengths is None else self.lengths.to_dict(),
        }

    def text(self) -> str:
        parts = [schemes_text(self.schemes, self.reached)] if self.schemes else [NO_SCHEME]
        if self.lengths is not None:
            notes = "\n".join(self.lengths.notes)
            parts.append(f"{self.lengths.header}\n{table(self.lengths.rows())}\n{notes}")
        return "\n\n".join(parts)

    def blocks(self) -> list[Block]:
        merged = merge_equal(self.schemes)
        blocks: list[Block] = [] if merged else [Words(f"{sentence(NO_SCHEME)}.")]
        for name, scheme in merged.items():
            blocks += scheme_blocks(name, scheme)
        if merged:
            blocks += [Heading("Properties"), Table(scheme_rows(merged), "positional encodings")]
            blocks.append(Terms(explain_columns(merged, self.reached)))
            blocks += [Words(sentence(text)) for text in (*explain_missing_probes(merged), *list_errors(merged))]
        if self.lengths is not None:
            loss = Table(self.lengths.rows(), "loss by length")
            blocks += [Heading("Loss by length"), Words(f"{self.lengths.header}."), loss]
            blocks += [Words(sentence(text), "hint") for text in self.lengths.notes]
        return blocks

    def figure(self) -> Figure:
        """Every scheme's encoding, similarity by distance and rotations."""
        if not self.schemes:
            raise ConfigError(f"{NO_SCHEME} to draw")
        return position_figure({name: scheme.drawing for name, scheme in self.schemes.items()})


def positions(predictor: Predictor, sentences: int | None = None) -> PositionsResult:
    """The positional encodings of the model: values, similarity by distance, probes, shifts, extrapolation; for translation
    also the loss by length, of validation sentences alone and concatenated. sentences: of the validation data, default: 200.

    >>> result = heedful.inspection.positions(translator, sentences=5)
    >>> [scheme.scheme for scheme in result.schemes.values()]
    ['Sinusoidal', 'Sinusoidal']
    """
    of_texts = predictor.has_source and predictor.run.model.image_shape is None  # two images cannot be concatenated
    if sentences is not None and not of_texts:
        task = predictor.run.task.name
        raise ConfigError(f"sentences has no effect in a run of task {task!r}, whose loss is not measured by length")
    lengths = length_losses(predictor, sentences or SENTENCES) if of_texts else None
    reached = predictor.positions if lengths is None else lengths.longest
    own = {name: analyze_scheme(scheme, reached) for name, scheme in add_sinusoidal(schemes(predictor.model)).items()}
    if not own and lengths is None:
        raise ConfigError(f"a model of family {predictor.run.model.family!r} has no positional encoding")
    return PositionsResult(reached, own, lengths)


def add_sinusoidal(schemes: dict[str, Position]) -> dict[str, Position]:
    """Add sinusoidal vectors of the same size, for comparison with a learned table."""
    added: dict[str, Position] = {}
    for position in schemes.values():
        if isinstance(position, Learned) and position.grid is None and not position.size.dim % 2:
            added["(sinusoidal)"] = Sinusoidal(position.size)
        elif isinstance(position, Learned) and position.grid is not None and not position.size.dim % 4:
            added["(sinusoidal, of patches)"] = PatchSinusoids(position.size, position.grid)
    return schemes | added


def analyze_scheme(position: Position, reached: int) -> PositionScheme:
    """reached: the number of positions seen in training; learned positions beyond them are not analyzed. Of an image, all are
    seen."""
    if position.grid is not None:
        return analyze_patches(position, position.grid)
    count = MAX_POSITIONS if position.limit is None else min(reached, position.limit)
    encoded, similarity = encoding(position, count), scores(position, count)
    has_vectors = encoded.kind == "vectors"
    return PositionScheme(
        scheme=type(position).__name__,
        positions=count,
        limit=position.limit,
        encoding=encoded._replace(values=encoded.values.detach().cpu()),
        scores=similarity.cpu(),
        similarity=by_distance(similarity).tolist(),
        cosine=by_distance(cosines(similarity)).tolist() if has_vectors else None,
        shape=shape_of(similarity),
        beyond=extrapolation(position, reached),
        vectors=probe_vectors(position, count) if has_vectors else None,
    )


def analyze_patches(position: Position, grid: PatchGrid) -> PositionScheme:
    """Similarity by the distance of patches, and by their rows and columns. Probes and shifts are those of a sequence."""
    encoded, similarity = encoding(position, grid.positions), scores(position, grid.positions)
    has_vectors, similar = encoded.kind == "vectors", of_patches(similarity, grid)
    cosine = of_patches(cosines(similarity), grid)
    return PositionScheme(
        scheme=type(position).__name__,
        positions=grid.positions,
        limit=grid.positions,
        encoding=encoded._replace(values=encoded.values.detach().cpu()),
        scores=similarity.cpu(),
        similarity=by_grid_distance(similar, grid).tolist(),
        cosine=by_grid_distance(cosine, grid).tolist() if has_vectors else None,
        shape=shape_of(similar, grid),
        beyond=Extrapolation(
            f"an image has {grid.down} x {grid.across} patches, so that there are no positions beyond them", None
        ),
        vectors=None,
        patches=by_row_and_column(cosine if has_vectors else similar, grid).cpu(),
    )


def rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in values.tolist()]


def probe_vectors(position: Position, count: int) -> VectorProbes | None:
    """Probes and shifts of the first `count` positions, or of more where the scheme has no limit; None: too few."""
    added = vectors(position, torch.arange(4 * MAX_POSITIONS if position.limit is None else count)).detach()
    if len(added) < MIN_POSITIONS:
        return None
    errors = {shift: shift_error(added, shift) for shift in SHIFTS}
    return VectorProbes(len(added), probe(added), errors, {shift: recover_rotations(added, shift)[:PAIRS] for shift in SHIFTS})


def length_losses(predictor: Predictor, sentences: int) -> LengthLosses:
    samples = list(islice(predictor.sample_texts("valid"), sentences))
    examples = Examples([sample.source or "" for sample in samples], [sample.target or "" for sample in samples])
    alone = score_examples(predictor.system, examples)
    longest = max(len(one.losses) for one in alone)
    concatenated, refused = [], None
    for times in range(2, MAX_JOINED + 1):
        try:
            concatenated += score_examples(predictor.system, join_neighbors(examples, times))
        except HeedfulError as error:
            refused = str(error.args[0])
            break
    width = -(-longest // 2)  # so that a bucket ends at the longest single sentence
    joined = by_length(concatenated, width), by_position(concatenated, width)
    return LengthLosses(len(samples), longest, refused, by_length(alone, width), *joined)


def merge_equal(schemes: Mapping[str, PositionScheme]) -> dict[str, PositionScheme]:
    """Merge schemes with equal results under their joined names."""
    merged: list[tuple[list[str], PositionScheme, dict[str, Any]]] = []
    for name, one in schemes.items():
        numbers = one.to_dict()
        names = next((names for names, _, other in merged if numbers == other), None)
        if names is None:
            merged.append(([name], one, numbers))
        else:
            names.append(name)
    return {" and ".join(names): one for names, one, _ in merged}


def scheme_blocks(name: str, scheme: PositionScheme) -> list[Block]:
    """The pictures and tables of one scheme."""
    drawing = scheme.drawing
    blocks: list[Block] = [Heading(f"{name}: {drawing.scheme}"), Pictures(scheme_figures(drawing))]
    blocks.append(Table(similarity_rows({"": scheme}), "similarity by distance"))
    if scheme.patches is not None:
        blocks.append(Words(PATCHES_LEGEND, "hint"))
    rotations = [row[1:] for row in rotation_rows({"": scheme})]
    if rotations:
        legend = Words(sentence(ROTATION_LEGEND), "hint")
        blocks += [Words(DIAL_LEGEND, "hint"), Table(rotations, "rotation by shift"), legend]
    return blocks


def schemes_text(schemes: Mapping[str, PositionScheme], reached: int) -> str:
    rotations = rotation_rows(schemes)
    rotation_text = f"\n{table(rotations)}\n{ROTATION_LEGEND}\n\n" if rotations else ""
    columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in explain_columns(schemes, reached).items()), 120)
    notes = [columns, *explain_missing_probes(schemes), *list_errors(schemes)]
    return f"{table(scheme_rows(schemes))}\n\n{table(similarity_rows(schemes))}\n{rotation_text}" + "\n".join(notes)


def scheme_rows(schemes: Mapping[str, PositionScheme]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("scheme", "kind", "toeplitz", "symmetry", "distance corr.", "beyond", "index probe", "order probe")
    ]
    for name, one in schemes.items():
        correlation = "-" if one.shape.distance_correlation is None else f"{one.shape.distance_correlation:+.2f}"
        beyond = "none" if one.beyond.refused else f"{one.beyond.unseen:.0%} new"
        probe_errors = ("-", "-")
        if one.vectors is not None:
            probes = one.vectors.probes
            probe_errors = f"{probes.index_error:.2f} of {probes.index_chance:.0f}", f"{probes.order_error:.1%}"
        errors = f"{one.shape.toeplitz_error:.4f}", f"{one.shape.symmetry_error:.4f}"
        rows.append((name, f"{one.scheme}: {one.encoding.kind}", *errors, correlation, beyond, *probe_errors))
    return rows


def similarity_rows(schemes: Mapping[str, PositionScheme]) -> list[tuple[str, ...]]:
    def row(name: str, measure: str, values: Sequence[float], decimals: str) -> tuple[str, ...]:
        near = [f"{value:{decimals}}" for value in values[:DISTANCES]]
        return (f"{name}, {measure}" if name else measure, *near, *[""] * (DISTANCES - len(near)))

    rows: list[tuple[str, ...]] = [("similarity by distance", *map(str, range(DISTANCES)))]
    for name, one in schemes.items():
        rows.append(row(name, "score" if one.cosine is None else "dot", one.similarity, ".4g"))
        if one.cosine is not None:
            rows.append(row(name, "cosine", one.cosine, ".4f"))
        if one.patches is not None:
            rows.append(row(name, "rows apart, same column", one.patches[:, 0].tolist(), ".4f"))
            rows.append(row(name, "columns apart, same row", one.patches[0].tolist(), ".4f"))
    return rows


def rotation_rows(schemes: Mapping[str, PositionScheme]) -> list[tuple[str, ...]]:
    """The effect of a shift by k positions on the vectors, for schemes that add vectors to embeddings."""
    rows: list[tuple[str, ...]] = [("scheme", "shift k", "unexplained", *(f"pair {pair} rotation" for pair in range(PAIRS)))]
    for name, one in schemes.items():
        for shift, pairs in {} if one.vectors is None else one.vectors.rotations.items():
            degrees = [f"{pair.degrees:.1f}° ({pair.missed:.0%})" for pair in pairs]
            error = f"{one.vectors.shift_errors[shift]:.2g}" if one.vectors is not None else ""
            rows.append((name, str(shift), error, *degrees, *[""] * (PAIRS - len(degrees))))
    return rows if len(rows) > 1 else []


def explain_columns(schemes: Mapping[str, PositionScheme], reached: int) -> dict[str, str]:
    """The meaning of each column that has values."""
    has_probes = any(one.vectors is not None for one in schemes.values())
    meanings = {
        "toeplitz, symmetry": "0 if similarity depends on the distance only",
        "distance corr.": "correlation of similarity with distance",
        "beyond": f"share of values at the next {reached} positions outside the range of the {reached} positions of the data",
        "index probe": "mean error of a linear prediction of the position, and of always predicting the middle",
        "order probe": "share of pairs in the wrong order",
        "shift k": "variance that the best linear map from each position to the k-th after it leaves unexplained, and the "
        "rotation of single pairs of dimensions",
    }
    unused = [] if has_probes else ["index probe", "order probe", "shift k"]
    if all(one.patches is not None for one in schemes.values()):
        unused.append("beyond")
    return {name: meaning for name, meaning in meanings.items() if name not in unused}


def explain_missing_probes(schemes: Mapping[str, PositionScheme]) -> list[str]:
    """The reason for each scheme without probes and shifts."""
    patches = [name for name, one in schemes.items() if one.patches is not None]
    sequences = {name: one for name, one in schemes.items() if name not in patches}
    without = [name for name, one in sequences.items() if one.encoding.kind != "vectors"]
    few = [f"{name} has {one.positions}" for name, one in sequences.items() if name not in without and one.vectors is None]
    reasons = {
        f"probes and shifts are those of a sequence; patches of an image: {', '.join(patches)}.": patches,
        f"probes and shifts require vectors added to embeddings; there are none in: {', '.join(without)}.": without,
        f"probes and shifts require {MIN_POSITIONS} positions; {', '.join(few)}.": few,
    }
    return [reason for reason, names in reasons.items() if names]


def list_errors(schemes: Mapping[str, PositionScheme]) -> list[str]:
    return sorted({one.beyond.refused for one in schemes.values() if one.beyond.refused is not None})


def format_bucket(bucket: Bucket | None, counted: str) -> tuple[str, str, str]:
    """counted: tokens or sentences."""
    if bucket is None:
        return "", "", ""
    count = bucket.tokens if counted == "tokens" else bucket.sentences
    return f"{count:,}", f"{bucket.loss:.3f}", f"{bucket.accuracy:.1%}"
