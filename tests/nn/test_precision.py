"""Copies in another precision give the model's outputs within rounding errors and leave the model unchanged."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from tiny import PLAIN, Pairs, Variant, by_family, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn import precision
from heedful.nn.hooks import ablate, record
from heedful.nn.linear import ONEDNN, Linear, Readout, linear
from heedful.nn.model import SequenceModel
from heedful.nn.precision import PRECISIONS, QuantizedLinear, with_precision

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not ONEDNN, reason="requires a build of torch with oneDNN")
ERRORS = {"fp32": 1e-5, "bf16": 2e-2, "int8": 3e-2}  # relative to the norm of the correct output


class Tied(nn.Module):
    """Embedding, a linear layer used twice, and a tied output."""

    def __init__(self, dim: int = 64, vocab: int = 200) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.inner = linear(dim, dim)
        self.again = self.inner
        self.norm = nn.LayerNorm(dim)
        self.readout = Readout(self.table)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.readout(self.norm(self.again(self.inner(self.table(tokens)).relu())))
        return out


def error(out: Tensor, expected: Tensor) -> float:
    return float((out.float() - expected).norm() / expected.norm())


@pytest.fixture
def tied() -> Tied:
    model = Tied()
    nn.init.normal_(model.inner.bias)
    return model


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 20)])
def test_a_converted_model_gives_the_models_outputs(tied: Tied, name: str, shape: tuple[int, int]) -> None:
    tokens = torch.randint(200, shape)
    with torch.inference_mode():
        assert error(with_precision(tied, name, CPU)(tokens), tied(tokens)) < ERRORS[name]


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", by_family(PLAIN), ids=str)
def test_every_family_can_be_converted(variant: Variant, name: str, pairs: Pairs) -> None:
    model = tiny_model(variant)

    def logits(model: SequenceModel) -> Tensor:
        state = model.start(pairs.source, pairs.mask, room=0)
        return model.project(model.step(pairs.target, state).hidden)

    with torch.inference_mode():
        assert error(logits(with_precision(model, name, CPU)), logits(model)) < 3 * ERRORS[name]


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_model_itself_is_unchanged(tied: Tied, name: str) -> None:
    before = {key: tensor.clone() for key, tensor in tied.state_dict().items()}
    modules = list(tied.modules())
    converted = with_precision(tied, name, CPU)
    assert list(tied.modules()) == modules
    assert tied.training
    assert not converted.training
    assert all(parameter.requires_grad for parameter in tied.parameters())
    assert not any(parameter.requires_grad for parameter in converted.parameters())
    assert tied.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in tied.state_dict().items())


@pytest.mark.parametrize("name", PRECISIONS)
def test_further_training_does_not_change_the_copy(tied: Tied, name: str) -> None:
    converted, tokens = with_precision(tied, name, CPU), torch.arange(12)[None]
    before = converted(tokens)
    with torch.no_grad():
        for parameter in tied.parameters():
            parameter.add_(1.0)
    assert torch.equal(converted(tokens), before)


@pytest.mark.parametrize("name", PRECISIONS)
def test_no_linear_layer_keeps_its_original_weight(tied: Tied, name: str) -> None:
    converted = with_precision(tied, name, CPU)
    assert not [module for module in converted.modules() if isinstance(module, Linear | Readout)]
    assert converted.inner is converted.again
    assert {name for name, _ in converted.named_parameters()} == {"table.weight", "norm.weight", "norm.bias"}


def test_original_weights_are_freed_with_the_model() -> None:
    tied = Tied()
    weights = [weakref.ref(tied.inner.weight), weakref.ref(tied.table.weight)]
    converted = with_precision(tied, "int8", CPU)
    del tied
    gc.collect()
    assert [weight() for weight in weights] == [None, None]
    assert converted(torch.tensor([[1]])).isfinite().all()


@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("levels", [127, 63])
def test_int8_errors_are_within_the_bound_of_rounding(rows: int, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each factor is off by half a level at most, so a sum of K products by K (x e_w + w e_x + e_w e_x)."""
    monkeypatch.setattr(precision, "LEVELS", levels)
    x, weight, bias = 3 * torch.randn(rows, 96) ** 3, torch.randn(40, 96) ** 3, torch.randn(40)
    half_x = x.abs().amax(1, keepdim=True) / 127 / 2  # (rows, 1)
    half_weight = weight.abs().amax(1) / levels / 2  # (outputs,)
    bound = x.abs().sum(1, keepdim=True) * half_weight + weight.abs().sum(1) * half_x + 96 * half_x * half_weight
    error_of_product = (QuantizedLinear(weight, bias)(x) - (x.double() @ weight.double().T + bias)).abs()
    assert (error_of_product <= bound + 1e-4).all()
    assert error_of_product.max() > 0


def test_int8_is_exact_for_integers() -> None:
    levels = precision.LEVELS
    x, weight = torch.randint(-127, 128, (6, 50)).float(), torch.randint(-levels, levels + 1, (9, 50)).float()
    x[:, 0], weight[:, 0] = 127, -levels
    assert_close(QuantizedLinear(weight, None)(x), x @ weight.T, rtol=1e-5, atol=0.5)


def test_activations_are_rounded_to_nearest() -> None:
    x = torch.tensor([[127.0, 10.6, -10.6, 3.4, -3.4], [-127.0, 0.6, 0.4, -0.6, 126.7]])
    assert_close(QuantizedLinear(torch.eye(5), None)(x), x.round(), atol=1e-3, rtol=0)


def test_the_largest_sum_does_not_overflow() -> None:
    x, weight = torch.ones(2, 4096), torch.ones(8, 4096)
    assert_close(QuantizedLinear(weight, None)(x), x @ weight.T, rtol=1e-3, atol=0)
    assert_close(QuantizedLinear(-weight, None)(x), -x @ weight.T, rtol=1e-3, atol=0)


def test_rows_are_independent() -> None:
    weight, x = torch.randn(24, 32), torch.randn(10, 32)
    together = QuantizedLinear(weight, None)(x)
    x[1:] *= 1000
    assert torch.equal(QuantizedLinear(weight, None)(x)[0], together[0])


def test_zeros_stay_zeros() -> None:
    weight, bias = torch.randn(4, 8), torch.randn(4)
    weight[2] = 0
    assert_close(QuantizedLinear(weight, bias)(torch.zeros(3, 8)), bias.expand(3, 4))
    assert_close(QuantizedLinear(weight, bias)(torch.randn(3, 8))[:, 2], bias[2].expand(3))


@pytest.mark.parametrize("name", PRECISIONS)
def test_hooks_work_on_converted_models(name: str, pairs: Pairs) -> None:
    model = tiny_model(PLAIN[0])
    converted = with_precision(model, name, CPU)

    def hidden() -> Tensor:
        return converted.step(pairs.target, converted.start(pairs.source, pairs.mask, room=0)).hidden

    with torch.inference_mode():
        plain = hidden()
        with record(converted, "decoder.*.out") as recorded:
            assert torch.equal(hidden(), plain)
        assert len(recorded) == 2
        with ablate(converted, "decoder.0.out"):
            assert not torch.equal(hidden(), plain)


@pytest.mark.parametrize("name", PRECISIONS)
def test_conversion_in_inference_mode_is_the_same(tied: Tied, name: str) -> None:
    tokens = torch.arange(6)[None]
    with torch.inference_mode():
        within = with_precision(tied, name, CPU)
        assert torch.equal(within(tokens), with_precision(tied, name, CPU)(tokens))
    assert torch.equal(within(tokens), with_precision(tied, name, CPU)(tokens))


def test_an_unknown_precision_is_an_error(tied: Tied) -> None:
    with pytest.raises(ConfigError, match=r"unknown precision 'int9'; expected one of: fp32, bf16, int8") as refused:
        with_precision(tied, "int9", CPU)
    assert refused.value.hint == "did you mean 'int8'?"


def test_int8_requires_a_cpu(tied: Tied) -> None:
    with pytest.raises(ConfigError, match=r"given precision 'int8' on device 'meta', expected device 'cpu'"):
        with_precision(tied, "int8", torch.device("meta"))
