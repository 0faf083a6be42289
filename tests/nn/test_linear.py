"""Linear maps: fused ones begin as the maps that they are made of would, and oneDNN's products are torch's."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn import linear as module
from heedful.nn.linear import LARGE, ONEDNN, Linear, Readout, apply, linear, onednn_is_faster

onednn_only = pytest.mark.skipif(not ONEDNN, reason="this torch was built without oneDNN")


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_each_fused_map_is_as_wide_as_if_it_stood_alone(blocks: int) -> None:
    made = linear(40, 60 * blocks, blocks=blocks)
    bound = math.sqrt(6 / (40 + 60))
    for block in made.weight.detach().chunk(blocks):
        assert 0.98 * bound < block.abs().max() <= bound
        assert float(block.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not made.bias.any()


def test_its_parameters_are_named_as_torchs() -> None:
    assert list(linear(3, 5).state_dict()) == list(nn.Linear(3, 5).state_dict()) == ["weight", "bias"]


def slopes(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(out.dtype)
    return out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)


def inputs_of(*shape: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(shape, requires_grad=True),
        torch.randn(outputs, shape[-1], requires_grad=True),
        torch.randn(outputs, requires_grad=True),
    )


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 0)


@onednn_only
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("shape", [(1, 3), (7, 3), (2, 5, 4), (2, 3, 4, 6), (33, 65)])
def test_small_products_equal_torchs_in_value_and_gradient(shape: tuple[int, ...]) -> None:
    x, weight, bias = inputs_of(*shape, outputs=9)
    assert onednn_is_faster(x, weight)
    ours = slopes(apply(x, weight, bias), x, weight, bias)
    torchs = slopes(functional.linear(x, weight, bias), x, weight, bias)
    for owned_slots, expected in zip(ours, torchs, strict=True):
        assert_close(owned_slots, expected, atol=1e-5, rtol=1e-5)
        assert owned_slots.shape == expected.shape
        assert owned_slots.is_contiguous()


@onednn_only
def test_large_products_are_torchs_to_five_digits() -> None:
    x, weight, bias = inputs_of(16, 40, 256, outputs=320)
    assert onednn_is_faster(x, weight)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    ours = slopes(apply(x, weight, bias), x, weight, bias)
    for owned_slots, expected in zip(ours, slopes(functional.linear(*exact), *exact), strict=True):
        assert float((owned_slots - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@onednn_only
@pytest.mark.usefixtures("always")
def test_strided_inputs_and_gradients_are_read_right() -> None:
    """As attention hands them over: transposed, a slice, and the constant gradient of a sum."""
    wide, weight = torch.randn(4, 6, 10, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    ours = apply(wide.transpose(0, 1)[..., ::2], weight)
    torchs = functional.linear(wide.transpose(0, 1)[..., ::2], weight)
    assert_close(ours, torchs)
    for inputs in ((wide, weight), (wide,), (weight,)):
        assert_close(
            torch.autograd.grad(ours.sum(), inputs, retain_graph=True),
            torch.autograd.grad(torchs.sum(), inputs, retain_graph=True),
        )


@onednn_only
@pytest.mark.usefixtures("always")
def test_gradients_of_gradients_are_torchs() -> None:
    def twice(map: object) -> tuple[Tensor, ...]:
        assert callable(map)
        (first,) = torch.autograd.grad(map(x, weight, bias).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), (x, weight, bias))

    x, weight, bias = inputs_of(6, 4, outputs=3)
    assert_close(twice(apply), twice(functional.linear), atol=1e-3, rtol=1e-4)


@onednn_only
def test_the_same_product_has_the_same_bits() -> None:
    x, weight, bias = inputs_of(512, 128, outputs=256)
    assert onednn_is_faster(x, weight)
    first, *others = (slopes(apply(x, weight, bias), x, weight, bias) for _ in range(4))
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_only_large_single_precision_products_on_a_cpu_are_oneDNNs() -> None:
    x, weight = torch.zeros(LARGE // 2048, 64), torch.zeros(32, 64)
    assert onednn_is_faster(x, weight) == ONEDNN
    assert not onednn_is_faster(x[1:], weight)
    assert not onednn_is_faster(x.double(), weight.double())
    assert not onednn_is_faster(x.bfloat16(), weight.bfloat16())
    assert not onednn_is_faster(x.to("meta"), weight.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not onednn_is_faster(x, weight)
        assert apply(x, weight).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions_are_torchs_own_bit_by_bit(dtype: torch.dtype) -> None:
    x, weight, bias = (tensor.detach().to(dtype) for tensor in inputs_of(512, 128, outputs=256))
    assert torch.equal(apply(x, weight, bias), functional.linear(x, weight, bias))


@onednn_only
@pytest.mark.usefixtures("always")
def test_a_compiler_sees_torchs_own_product() -> None:
    made, x = linear(4, 3), torch.randn(2, 4)
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, examples: list[Tensor]) -> torch.fx.GraphModule:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(made, backend=backend, fullgraph=True)
    assert_close(compiled(x), made(x))
    assert any("linear" in name for name in seen)
    assert not any("mkldnn" in name or "_Apply" in name for name in seen)


class Speller(nn.Module):
    """An embedding that is also read from."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.inner = linear(6, 6)
        self.readout = Readout(self.table)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.inner(self.table(tokens)))
        return out


def test_a_readout_multiplies_by_the_table() -> None:
    speller, hidden = Speller(), torch.randn(2, 3, 6)
    assert_close(speller.readout(hidden), hidden @ speller.table.weight.T)


def test_a_readout_lists_and_stores_nothing_of_its_own() -> None:
    speller = Speller()
    assert list(speller.state_dict()) == ["table.weight", "inner.weight", "inner.bias"]
    assert len(list(speller.parameters())) == 3
    assert list(speller.named_modules(remove_duplicate=False)) == [
        ("", speller), ("table", speller.table), ("inner", speller.inner), ("readout", speller.readout)
    ]  # fmt: skip


def test_a_readout_follows_its_table_through_copies_casts_and_loads() -> None:
    speller = Speller()
    other = copy.deepcopy(speller)
    other.load_state_dict({name: tensor + 1 for name, tensor in speller.state_dict().items()})
    other.double()
    assert other.readout.weight is other.table.weight
    assert other.readout.weight.dtype == torch.float64
    assert speller.readout.weight is speller.table.weight
    assert not torch.equal(other.table.weight, speller.table.weight)


def test_a_readout_teaches_the_table() -> None:
    speller = Speller()
    speller(torch.tensor([[1, 2]])).sum().backward()
    assert speller.table.weight.grad is not None
    assert speller.table.weight.grad.abs().sum(1).count_nonzero() == 11


def test_a_readout_can_be_compiled() -> None:
    speller, tokens = Speller(), torch.tensor([[1, 2]])
    assert_close(torch.compile(speller, backend="eager", fullgraph=True)(tokens), speller(tokens))


def test_the_class_is_a_linear_map_of_torch() -> None:
    assert isinstance(linear(3, 4), Linear)
    assert isinstance(linear(3, 4), nn.Linear)
