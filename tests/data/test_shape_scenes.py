"""Generated scenes: the caption describes the picture, the patches of a word are those of its objects, and no combination of a
split is in another."""

from __future__ import annotations

import numpy as np
import pytest

from heedful.data.image_files import ImageFormat
from heedful.data.shape_scenes import COLORS, KINDS, Combination, DrawnScene, draw_scenes, mask_of, plural, word_patches
from heedful.data.shapes import NOISE, SHAPES

FORM, PATCH = ImageFormat(24, 24, 3), 4
SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def scenes() -> list[DrawnScene]:
    return list(draw_scenes("train", 400, FORM))


def nearest_color(pixel: np.ndarray) -> str:
    return min(COLORS, key=lambda name: float(abs(pixel.astype(int) - COLORS[name]).sum()))


def test_every_object_of_the_caption_is_in_the_picture_and_nothing_else(scenes: list[DrawnScene]) -> None:
    for scene, pixels in scenes:
        masks = [mask_of(shape, FORM) for shape in scene.shapes]
        assert sum(masks).max() == 1, "no two overlap"  # type: ignore[union-attr]
        assert (pixels[~np.any(masks, axis=0)] < NOISE).all(), "the rest is background"
        for shape, mask in zip(scene.shapes, masks, strict=True):
            assert mask.sum() >= 9
            assert {nearest_color(pixel) for pixel in np.unique(pixels[mask], axis=0)} == {shape.color}


def test_the_caption_is_true_of_the_picture(scenes: list[DrawnScene]) -> None:
    """Numbers, colors and shapes in order, and the relation as read from the centers and sizes of the drawn pixels."""
    seen = set()
    for scene, _ in scenes:
        combination, words = scene.combination, scene.words
        named = [word for word in words if word in COLORS or word in SHAPES or word in map(plural, SHAPES)]
        expected = [(shape.color, shape.shape) for shape in scene.shapes[combination.number - 1 :]]
        singular = {plural(shape): shape for shape in SHAPES} | {shape: shape for shape in SHAPES}
        assert list(zip(named[::2], (singular[word] for word in named[1::2]), strict=True)) == expected
        assert words[0] == {1: "a", 2: "two", 3: "three"}[combination.number]
        masks = [mask_of(shape, FORM) for shape in scene.shapes]
        (first, *_), centers = masks, [np.argwhere(mask).mean(0) for mask in masks]
        if combination.relation in ("above", "below", "left of", "right of"):
            axis, sign = {"above": (0, 1), "below": (0, -1), "left of": (1, 1), "right of": (1, -1)}[combination.relation]
            gaps = [sign * (centers[-1] - center) for center in centers[: combination.number]]
            assert all(gap[axis] > 0 for gap in gaps)
            if combination.number == 1:
                assert gaps[0][axis] > abs(gaps[0][1 - axis]) and scene.shapes[0].radius > scene.shapes[1].radius
        if combination.relation == "between":
            middle, before, after = centers
            axis = int(abs(after - before).argmax())
            assert before[axis] < middle[axis] < after[axis] and first.any()
        seen.add((combination.number, combination.relation))
    assert seen == set(KINDS)


def test_the_patches_of_a_word_are_those_of_its_objects(scenes: list[DrawnScene]) -> None:
    checked = 0
    for scene, _ in scenes:
        for word, patches, refers in zip(scene.words, word_patches(scene, FORM, PATCH), scene.refers, strict=True):
            assert bool(patches) == bool(refers) == (word not in ("a", "two", "three", "above", "below", "left", "right", "of")
                                                     and word not in ("between", "and"))  # fmt: skip
            mask = np.any([mask_of(scene.shapes[at], FORM) for at in refers], axis=0) if refers else None
            for patch in patches:
                row, column = divmod(patch, 24 // PATCH)
                part = mask[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]  # type: ignore[index]
                assert part.mean() >= 0.25
                checked += 1
    assert checked > 1000


def test_splits_have_no_combination_in_common_and_training_has_every_part() -> None:
    found = {split: {drawn.scene.combination for drawn in draw_scenes(split, 600, FORM)} for split in SPLITS}
    assert not (found["train"] & found["test"] or found["train"] & found["valid"] or found["valid"] & found["test"])
    every = [Combination(color, shape, *kind) for color in COLORS for shape in SHAPES for kind in KINDS]
    assert len(every) == 288
    train = {one for one in every if one.split == "train"}
    assert len(train) == 192
    for kind in KINDS:  # with every number and relation, every color and every shape
        assert {one.color for one in train if one[2:] == kind} == set(COLORS)
        assert {one.shape for one in train if one[2:] == kind} == set(SHAPES)


def test_a_larger_count_appends() -> None:
    few, more = (list(draw_scenes("test", count, FORM)) for count in (3, 5))
    assert [drawn.scene for drawn in few] == [drawn.scene for drawn in more[:3]]
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(few, more, strict=False))
    assert len({len(drawn.scene.words) for drawn in draw_scenes("test", 60, FORM)}) >= 3
