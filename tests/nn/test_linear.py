"""Linear layers: fused blocks are initialized separately, and oneDNN's products equal torch's."""

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

onednn_only = pytest.mark.skipif(not ONEDNN, reason="requires a build of torch with oneDNN")


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_each_fused_block_is_initialized_separately(blocks: int) -> None:
    layer = linear(40, 60 * blocks, blocks=blocks)
    bound = math.sqrt(6 / (40 + 60))
    for block in layer.weight.detach().chunk(blocks):
        assert 0.98 * bound < block.abs().max() <= bound
        assert float(block.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not layer.bias.any()


def test_parameters_have_torchs_names() -> None:
    assert list(linear(3, 5).state_dict()) == list(nn.Linear(3, 5).state_dict()) == ["weight", "bias"]


def value_and_gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
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
    ours = value_and_gradients(apply(x, weight, bias), x, weight, bias)
    torchs = value_and_gradients(functional.linear(x, weight, bias), x, weight, bias)
    for result, expected in zip(ours, torchs, strict=True):
        assert_close(result, expected, atol=1e-5, rtol=1e-5)
        assert result.shape == expected.shape
        assert result.is_contiguous()


@onednn_only
def test_large_products_equal_torchs_to_five_digits() -> None:
    x, weight, bias = inputs_of(16, 40, 256, outputs=320)
    assert onednn_is_faster(x, weight)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    ours = value_and_gradients(apply(x, weight, bias), x, weight, bias)
    for result, expected in zip(ours, value_and_gradients(functional.linear(*exact), *exact), strict=True):
        assert float((result - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@onednn_only
@pytest.mark.usefixtures("always")
def test_strided_inputs_and_gradients_are_supported() -> None:
    """As in attention: transposed, a slice, and the constant gradient of a sum."""
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
def test_second_derivatives_equal_torchs() -> None:
    def twice(map: object) -> tuple[Tensor, ...]:
        assert callable(map)
        (first,) = torch.autograd.grad(map(x, weight, bias).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), (x, weight, bias))

    x, weight, bias = inputs_of(6, 4, outputs=3)
    assert_close(twice(apply), twice(functional.linear), atol=1e-3, rtol=1e-4)


@onednn_only
def test_products_are_deterministic() -> None:
    x, weight, bias = inputs_of(512, 128, outputs=256)
    assert onednn_is_faster(x, weight)
    first, *others = (value_and_gradients(apply(x, weight, bias), x, weight, bias) for _ in range(4))
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_only_large_single_precision_products_on_a_cpu_use_onednn() -> None:
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
def test_other_precisions_equal_torchs_bit_for_bit(dtype: torch.dtype) -> None:
    x, weight, bias = (tensor.detach().to(dtype) for tensor in inputs_of(512, 128, outputs=256))
    assert torch.equal(apply(x, weight, bias), functional.linear(x, weight, bias))


@onednn_only
@pytest.mark.usefixtures("always")
def test_compiled_code_uses_torchs_own_product() -> None:
    layer, x = linear(4, 3), torch.randn(2, 4)
    targets: list[str] = []

    def backend(graph: torch.fx.GraphModule, examples: list[Tensor]) -> torch.fx.GraphModule:
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    assert_close(compiled(x), layer(x))
    assert any("linear" in name for name in targets)
    assert not any("mkldnn" in name or "_Apply" in name for name in targets)


class Tied(nn.Module):
    """A model with tied embedding and output."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.inner = linear(6, 6)
        self.readout = Readout(self.table)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.inner(self.table(tokens)))
        return out


def test_a_readout_multiplies_by_the_embedding() -> None:
    model, hidden = Tied(), torch.randn(2, 3, 6)
    assert_close(model.readout(hidden), hidden @ model.table.weight.T)


def test_a_readout_registers_no_parameters() -> None:
    model = Tied()
    assert list(model.state_dict()) == ["table.weight", "inner.weight", "inner.bias"]
    assert len(list(model.parameters())) == 3
    assert list(model.named_modules(remove_duplicate=False)) == [
        ("", model), ("table", model.table), ("inner", model.inner), ("readout", model.readout)
    ]  # fmt: skip


def test_a_readout_stays_tied_after_copies_casts_and_loads() -> None:
    model = Tied()
    other = copy.deepcopy(model)
    other.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()})
    other.double()
    assert other.readout.weight is other.table.weight
    assert other.readout.weight.dtype == torch.float64
    assert model.readout.weight is model.table.weight
    assert not torch.equal(other.table.weight, model.table.weight)


def test_a_readout_gives_the_embedding_a_gradient() -> None:
    model = Tied()
    model(torch.tensor([[1, 2]])).sum().backward()
    assert model.table.weight.grad is not None
    assert model.table.weight.grad.abs().sum(1).count_nonzero() == 11


def test_a_readout_can_be_compiled() -> None:
    model, tokens = Tied(), torch.tensor([[1, 2]])
    assert_close(torch.compile(model, backend="eager", fullgraph=True)(tokens), model(tokens))


def test_linear_is_a_subclass_of_torchs() -> None:
    assert isinstance(linear(3, 4), Linear)
    assert isinstance(linear(3, 4), nn.Linear)
