"""Toy images with captions: one to three colored shapes, and a sentence of a small grammar that describes them.

    caption   ->  group  |  group relation object  |  object between object and object
    group     ->  object  |  two color shapes  |  three color shapes
    object    ->  a color shape
    relation  ->  above  |  below  |  left of  |  right of          of two objects the larger one is named first, of a group and
                                                                    an object the group; the outer objects of "between" from
                                                                    left to right or from top to bottom

So an image has exactly one caption. The first color and shape of a caption, the number of such shapes and the relation are its
combination, of which there are 288. Each belongs to one split:

    (color - shape + kind) mod 6  =  0: test,  1: valid,  else train        kind: the number of a (number, relation)

Every color and every shape occurs in training with every number and relation, but the combinations of valid and test do not.

Scene n of a split is a pure function of (split, n, size of the image), so a larger count only appends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.image_files import ImageFormat, Pixels
from heedful.data.shapes import SHAPES, STREAMS, covered, draw_background

COLORS = {
    "blue": (40, 90, 235),
    "green": (40, 190, 60),
    "purple": (165, 50, 200),
    "red": (225, 40, 40),
    "white": (235, 235, 235),
    "yellow": (235, 210, 40),
}
JITTER = 18  # maximum change of a color
STREAM = 16  # of random numbers, added to those of `shapes`
NUMBERS = ("a", "two", "three")
DIRECTIONS = {
    "above": (0, -1),
    "below": (0, 1),
    "left of": (1, -1),
    "right of": (1, 1),
}  # axis (0: vertical), side of the first
KINDS = (
    *((count, "") for count in (1, 2, 3)),
    *((count, relation) for count in (1, 2) for relation in DIRECTIONS),
    (1, "between"),
)  # number of the first shape, relation
MIN_COVERED = 0.25  # of a patch, for it to belong to an object


class Combination(NamedTuple):
    color: str
    shape: str
    number: int  # of such shapes
    relation: str  # to the other objects; "": there are none

    @property
    def split(self) -> str:
        place = list(COLORS).index(self.color) - SHAPES.index(self.shape) + KINDS.index((self.number, self.relation))
        return {0: "test", 1: "valid"}.get(place % len(COLORS), "train")


class Shape(NamedTuple):
    """A shape in an image whose height and width are 1."""

    color: str
    shape: str
    center: tuple[float, float]  # y, x
    radius: float


class Scene(NamedTuple):
    combination: Combination
    shapes: list[Shape]  # in the order of the caption
    words: list[str]
    refers: list[list[int]]  # for each word the shapes that it refers to; none: it is no color and no shape

    @property
    def caption(self) -> str:
        return " ".join(self.words)


class DrawnScene(NamedTuple):
    scene: Scene
    pixels: Pixels


def draw_scenes(split: str, count: int, form: ImageFormat) -> Iterator[DrawnScene]:
    """The first scenes of a split."""
    for number in range(count):
        draw = np.random.Generator(np.random.Philox(key=[STREAM + STREAMS[split], number]))
        scene = make_scene(draw_combination(split, draw), draw)
        yield DrawnScene(scene, paint(scene, form, draw))


def draw_combination(split: str, draw: np.random.Generator) -> Combination:
    """A combination of the split; every number and relation is equally frequent."""
    kind = KINDS[int(draw.integers(len(KINDS)))]
    while True:
        color, shape = draw_object(draw)
        if (found := Combination(color, shape, *kind)).split == split:
            return found


def draw_object(draw: np.random.Generator, unlike: tuple[str, str] | None = None) -> tuple[str, str]:
    """A color and a shape, other than the given ones together."""
    while True:
        found = list(COLORS)[int(draw.integers(len(COLORS)))], SHAPES[int(draw.integers(len(SHAPES)))]
        if found != unlike:
            return found


def make_scene(combination: Combination, draw: np.random.Generator) -> Scene:
    color, shape, count, relation = combination
    others = [draw_object(draw, unlike=(color, shape)) for _ in range({"": 0, "between": 2}.get(relation, 1))]
    places = place_shapes(count, relation, draw)
    named = [*[(color, shape)] * count, *others]
    shapes = [Shape(*one, *place) for one, place in zip(named, places, strict=True)]
    words, refers = [NUMBERS[count - 1], color, plural(shape) if count > 1 else shape], [[], [*range(count)], [*range(count)]]
    for at, (other_color, other_shape) in enumerate(others):
        before = [*relation.split(), "a"] if at == 0 else ["and", "a"]
        words += [*before, other_color, other_shape]
        refers += [*([] for _ in before), [count + at], [count + at]]
    return Scene(combination, shapes, words, refers)


def plural(shape: str) -> str:
    return f"{shape}es" if shape.endswith("s") else f"{shape}s"


def place_shapes(count: int, relation: str, draw: np.random.Generator) -> list[tuple[tuple[float, float], float]]:
    """Center and radius of each shape, in the order of the caption; no two overlap."""
    if not relation and count == 1:
        radius = draw.uniform(0.16, 0.3)
        return [((draw.uniform(radius, 1 - radius), draw.uniform(radius, 1 - radius)), radius)]
    if not relation:
        cells = draw.permutation(9)[:count].tolist()  # of a grid of 3 x 3
        return [
            (jitter((1 + 2 * (cell // 3)) / 6, (1 + 2 * (cell % 3)) / 6, draw), draw.uniform(0.125, 0.145)) for cell in cells
        ]
    if relation == "between":
        along = np.array((0.5, 0.17, 0.83))  # the middle, the first, the last
        across, axis = draw.uniform(0.25, 0.75), int(draw.integers(2))
        return [(jitter(*point(at, across, axis), draw), draw.uniform(0.125, 0.145)) for at in along]
    axis, side = DIRECTIONS[relation]
    first, last = 0.5 + side * draw.uniform(0.25, 0.3), 0.5 - side * draw.uniform(0.27, 0.32)
    across = draw.uniform(0.3, 0.7)
    if count == 1:
        return [
            (jitter(*point(first, across, axis), draw), draw.uniform(0.19, 0.21)),
            (jitter(*point(last, across, axis), draw), draw.uniform(0.125, 0.145)),
        ]
    pair = [(jitter(*point(first, place, axis), draw), draw.uniform(0.125, 0.145)) for place in (0.25, 0.75)]
    return [*pair, (jitter(*point(last, across, axis), draw), draw.uniform(0.125, 0.145))]


def point(along: float, across: float, axis: int) -> tuple[float, float]:
    """y and x of a point that is so far along an axis, 0: vertical, 1: horizontal."""
    return (along, across) if axis == 0 else (across, along)


def jitter(y: float, x: float, draw: np.random.Generator) -> tuple[float, float]:
    moved_y, moved_x = draw.uniform(-0.02, 0.02, 2)
    return y + float(moved_y), x + float(moved_x)


def paint(scene: Scene, form: ImageFormat, draw: np.random.Generator) -> Pixels:
    pixels = draw_background(form, draw)
    for one in scene.shapes:
        pixels[mask_of(one, form)] = (np.array(COLORS[one.color]) + draw.integers(-JITTER, JITTER + 1, 3)).clip(0, 255)
    return pixels.astype(np.uint8)


def mask_of(shape: Shape, form: ImageFormat) -> NDArray[np.bool_]:
    """The pixels of a shape, (height, width)."""
    side, (y, x) = min(form.height, form.width), shape.center
    return covered(shape.shape, form, (y * form.height, x * form.width), shape.radius * side)


def patches_of(shape: Shape, form: ImageFormat, patch: int) -> list[int]:
    """The patches that belong to a shape, row by row: those of which it covers a quarter, and the one that it covers most."""
    grid = mask_of(shape, form).reshape(form.height // patch, patch, form.width // patch, patch)
    shares = grid.mean((1, 3)).ravel()  # (patches,)
    return sorted({*np.flatnonzero(shares >= MIN_COVERED).tolist(), int(shares.argmax())})


def word_patches(scene: Scene, form: ImageFormat, patch: int) -> list[list[int]]:
    """For each word of the caption the patches of the shapes that it refers to; none: it is no color and no shape."""
    own = [patches_of(shape, form, patch) for shape in scene.shapes]
    return [sorted({at for number in refers for at in own[number]}) for refers in scene.refers]
