"""The Vision Transformer: published parameter counts, token counts, what its states depend on, standardized pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.config.read import read_settings
from heedful.errors import ConfigError
from heedful.models.vit import Vit, VitConfig
from heedful.nn.hooks import ablate, hook, hook_points, record
from heedful.nn.model import SELF
from heedful.nn.patches import join_patches, split_patches
from heedful.nn.structure import FunctionStructure, MatrixStructure

CLASSES = 1000
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {  # with a linear layer for 1000 classes, at 224 x 224 pixels
    "B/16": ({"dim": 768, "layers": 12, "heads": 12, "patch": 16}, 86_567_656),
    "L/16": ({"dim": 1024, "layers": 24, "heads": 16, "patch": 16}, 304_326_632),
    "H/14": ({"dim": 1280, "layers": 32, "heads": 16, "patch": 14}, 632_045_800),
}
VARIANTS = [(position, pooling) for position in ("none", "learned", "sinusoidal") for pooling in ("cls", "mean")]


def tiny_vit(**changes: Any) -> Vit:
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"dim": 16, "layers": 2, "heads": 2, "image_size": (6, 8), "channels": 3, "patch": 2}
    return Vit(VitConfig(**sizes | {"dropout": 0.0} | changes)).eval()


@pytest.fixture
def pixels() -> Tensor:
    return torch.randint(0, 256, (3, 6, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_have_exact_parameter_counts(name: str) -> None:
    sizes, expected = PUBLISHED[name]
    with torch.device("meta"):
        model = Vit(VitConfig(**sizes))
    head = CLASSES * (model.config.dim + 1)
    assert sum(parameter.numel() for parameter in model.parameters()) + head == expected


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@torch.inference_mode()
def test_there_is_a_token_for_each_patch_and_one_for_the_class(pooling: str, pixels: Tensor) -> None:
    model = tiny_vit(pooling=pooling)
    expected = (6 // 2) * (8 // 2) + (1 if pooling == "cls" else 0)
    assert model.config.grid.positions == expected
    assert model.encode(pixels).shape == (3, expected, 16)
    assert model.first_state(model.encode(pixels)).shape == (3, 16)
    assert VitConfig().grid.positions == 197


def test_patches_are_blocks_of_pixels_row_by_row(pixels: Tensor) -> None:
    patches = split_patches(pixels, 2)
    assert patches.shape == (3, 12, 12)
    assert torch.equal(patches[:, 5], pixels[:, 2:4, 2:4].flatten(1))  # the second row, the second column
    assert torch.equal(join_patches(patches, 2, 4), pixels)


@pytest.mark.parametrize(("position", "pooling"), VARIANTS)
@torch.inference_mode()
def test_the_order_of_patches_matters_only_with_positions(position: str, pooling: str, pixels: Tensor) -> None:
    model = tiny_vit(position=position, pooling=pooling)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(5))
    shuffled = join_patches(split_patches(pixels, 2)[:, order], 2, 4)
    before, after = (model.first_state(model.encode(images)) for images in (pixels, shuffled))
    assert torch.allclose(before, after, atol=1e-5) == (position == "none")


@pytest.mark.parametrize(("position", "pooling"), VARIANTS)
def test_every_parameter_receives_a_gradient(position: str, pooling: str, pixels: Tensor) -> None:
    model = tiny_vit(position=position, pooling=pooling)
    loss = (model.first_state(model.encode(pixels)) @ torch.randn(16)).sum()
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    assert names
    assert [name for name, gradient in zip(names, gradients, strict=True) if gradient is None or not gradient.any()] == []


@torch.inference_mode()
def test_attention_and_layer_outputs_are_declared_and_recorded_without_change(pixels: Tensor) -> None:
    model = tiny_vit()
    plain, attentions, outputs = model.encode(pixels), model.attentions(), model.layer_outputs()
    points = {getattr(module, "weights", None) for module in model.modules()} & set(hook_points(model).values())
    assert {hook_points(model)[one.weights] for one in attentions} == points and len(attentions) == 2
    with record(model, *(one.weights for one in attentions), *(output.name for output in outputs)) as recorded:
        assert torch.equal(model.encode(pixels), plain)
    for one in attentions:
        assert one.kind == SELF and recorded[one.weights].shape == (3, 2, 13, 13)
        assert_close(recorded[one.weights].sum(-1), torch.ones(3, 2, 13))
        with ablate(model, one.context):
            assert not torch.equal(model.encode(pixels), plain)
    assert [output.layer for output in outputs] == [0, 1]
    assert all(recorded[output.name].shape == plain.shape for output in outputs)


@torch.inference_mode()
def test_sinusoids_of_patches_are_most_similar_in_their_row_and_column() -> None:
    model = tiny_vit(position="sinusoidal", image_size=(16, 16), dim=64, heads=2, pooling="mean")
    vectors = model.position.embed(torch.zeros(1, 64, 64), torch.arange(64)[None])[0]
    similarity = torch.nn.functional.cosine_similarity(vectors[27], vectors, dim=-1).view(8, 8)  # row 3, column 3
    others = [0, 1, 2, 4, 5, 6, 7]
    assert bool((similarity[3] > similarity[others]).all()) and bool((similarity[:, 3:4] > similarity[:, others]).all())
    assert_close(similarity, similarity.T)


@torch.inference_mode()
def test_fitted_pixels_have_mean_zero_and_deviation_one(pixels: Tensor) -> None:
    model = tiny_vit()
    images = pixels.clone()
    images[..., 2] = 7  # a constant channel is only centered
    counts = torch.stack([torch.bincount(images[..., channel].flatten().long(), minlength=256) for channel in range(3)])
    model.fit_pixels(counts)
    with record(model, "embed_patches.patches") as recorded:
        model.encode(images)
    values = join_patches(recorded["embed_patches.patches"], 2, 4)
    assert_close(values.mean((0, 1, 2)), torch.zeros(3), atol=1e-5, rtol=0)
    assert_close(values.std((0, 1, 2), correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5, rtol=0)
    assert np.allclose(model.embed_patches.mean[0], images[..., 0].double().mean() / 255, atol=1e-6)


def test_sizes_that_do_not_fit_are_all_reported() -> None:
    changes = ['family="vit"', "dim=30", "heads=4", "patch=5", "image_size=[28, 28]", 'position="sinusoidal"']
    with pytest.raises(ConfigError) as error:
        read_settings(VitConfig, None, changes)
    for part in ("4, which does not divide dim 30", "5, which does not divide both sizes", "30, expected a multiple of 4"):
        assert part in str(error.value)


def patches_that_matter(model: Vit) -> Tensor:
    """(time, patches): whether a state depends on the pixels of a patch, by the Jacobian."""
    inputs: list[Tensor] = []

    def leaf(name: str, patches: Tensor) -> Tensor:
        inputs.append(patches.detach().double().requires_grad_())
        return inputs[-1]

    with hook(model.double(), "embed_patches.patches", leaf):
        hidden = model.encode(torch.randint(0, 256, (1, 6, 8, 3)))[0]  # (time, dim)
    weights = torch.randn_like(hidden[0])
    rows = [torch.autograd.grad(state @ weights, inputs[0], retain_graph=True)[0][0] for state in hidden]
    return torch.stack([row.abs().sum(-1) > 0 for row in rows])


def steps_apart() -> Tensor:
    """(patches, patches): the larger one of the differences of rows and columns, of 3 x 4 patches."""
    places = torch.arange(12)
    rows, columns = places // 4, places % 4
    return torch.maximum((rows[:, None] - rows).abs(), (columns[:, None] - columns).abs())


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_a_grid_moves_information_by_one_patch_in_each_layer(layers: int) -> None:
    structure = {"kind": "grid"} if layers else {}
    model = tiny_vit(layers=layers, pooling="mean", structure=structure)
    assert torch.equal(patches_that_matter(model), steps_apart() <= layers)
    if layers == 1:
        wider = tiny_vit(layers=1, pooling="mean", structure={"kind": "grid", "radius": 2})
        assert torch.equal(patches_that_matter(wider), steps_apart() <= 2)


def test_the_class_token_attends_to_all_patches_and_all_attend_to_it() -> None:
    model = tiny_vit(layers=1, pooling="cls", structure={"kind": "grid"})
    with torch.inference_mode(), record(model, "layers.0.self_attention.weights") as recorded:
        model.encode(torch.randint(0, 256, (1, 6, 8, 3)))
    weights = recorded["layers.0.self_attention.weights"][0]  # (heads, 13, 13)
    expected = torch.ones(13, 13, dtype=torch.bool)
    expected[1:, 1:] = steps_apart() <= 1
    assert torch.equal(weights > 0, expected.expand_as(weights))
    assert torch.equal(patches_that_matter(model)[1:], steps_apart() <= 1)
    assert patches_that_matter(tiny_vit(layers=2, pooling="cls", structure={"kind": "grid"})).all()  # through [CLS]


@torch.inference_mode()
def test_a_matrix_and_a_function_are_masks_or_biases_of_the_patches(pixels: Tensor) -> None:
    near = steps_apart() <= 1
    given, by_matrix, by_function = (tiny_vit(structure=one) for one in ({"kind": "grid"}, {}, {}))
    by_matrix.structure = MatrixStructure(12, 12, "mask")
    by_matrix.structure.set(near.float())
    by_function.structure = FunctionStructure(lambda i, j: near[i, j])
    expected = given.encode(pixels)
    for model in (by_matrix, by_function):
        assert_close(model.encode(pixels), expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(tiny_vit().encode(pixels), expected, atol=1e-3)
    biased = tiny_vit()
    biased.structure = FunctionStructure(lambda i, j: torch.where(near[i, j], 0.0, -1e4))
    assert_close(biased.encode(pixels), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (
            '{kind="grid", columns=4}',
            "columns: given 4, but has no effect because the columns of a grid are those of the image",
        ),
        ('{kind="matrix", file="a.npy", positions=13}', "structure.positions: given 13, expected 12: the patches of an image"),
        ('{kind="window"}', "structure.kind: given 'window', expected one of: full, grid, matrix, edges"),
        ('{kind="edges"}', "structure.file: missing; expected a value for kind 'edges'"),
    ],
)
def test_a_structure_that_does_not_fit_the_patches_is_an_error(structure: str, message: str) -> None:
    changes = ["dim=16", "heads=2", "image_size=[6, 8]", "patch=2", f"structure={structure}"]
    with pytest.raises(ConfigError) as error:
        read_settings(VitConfig, None, changes)
    assert message in str(error.value)


def test_the_positions_of_a_structure_are_the_patches() -> None:
    changes = ["dim=16", "heads=2", "image_size=[6, 8]", "patch=2", 'structure={kind="edges", file="edges.csv"}']
    assert read_settings(VitConfig, None, changes).config.structures["structure"].shape == (12, 12)
