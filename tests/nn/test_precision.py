"""Prepared models say what the model says, as exactly as their precision allows, and leave the model alone."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from tiny import PLAIN, Pairs, Speaker, Variant, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn import precision
from heedful.nn.hooks import ablate, record
from heedful.nn.linear import ONEDNN, Linear, Readout, linear
from heedful.nn.precision import PRECISIONS, QuantizedLinear, with_precision

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not ONEDNN, reason="this torch was built without oneDNN")
ERRORS = {"fp32": 1e-5, "bf16": 2e-2, "int8": 3e-2}  # allowed, relative to the norm of what is right


class Speller(nn.Module):
    """Embedding, a map used twice, a bend, and the same embedding read from."""

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


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


@pytest.fixture
def speller() -> Speller:
    made = Speller()
    nn.init.normal_(made.inner.bias)
    return made


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 20)])
def test_a_prepared_model_says_what_the_model_says(speller: Speller, name: str, shape: tuple[int, int]) -> None:
    tokens = torch.randint(200, shape)
    with torch.inference_mode():
        assert error(with_precision(speller, name, CPU)(tokens), speller(tokens)) < ERRORS[name]


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", PLAIN, ids=str)
def test_so_does_every_family(variant: Variant, name: str, pairs: Pairs) -> None:
    model = tiny_model(variant)

    def logits(speaker: Speaker) -> Tensor:
        state = speaker.start(pairs.source, pairs.mask, room=0)
        return speaker.project(speaker.step(pairs.target, state).hidden)

    with torch.inference_mode():
        assert error(logits(with_precision(model, name, CPU)), logits(model)) < 3 * ERRORS[name]


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_model_itself_stays_as_it_was(speller: Speller, name: str) -> None:
    before = {key: tensor.clone() for key, tensor in speller.state_dict().items()}
    modules = list(speller.modules())
    made = with_precision(speller, name, CPU)
    assert list(speller.modules()) == modules
    assert speller.training
    assert not made.training
    assert all(parameter.requires_grad for parameter in speller.parameters())
    assert not any(parameter.requires_grad for parameter in made.parameters())
    assert speller.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in speller.state_dict().items())


@pytest.mark.parametrize("name", PRECISIONS)
def test_training_on_does_not_reach_what_was_prepared(speller: Speller, name: str) -> None:
    made, tokens = with_precision(speller, name, CPU), torch.arange(12)[None]
    before = made(tokens)
    with torch.no_grad():
        for parameter in speller.parameters():
            parameter.add_(1.0)
    assert torch.equal(made(tokens), before)


@pytest.mark.parametrize("name", PRECISIONS)
def test_no_linear_map_keeps_the_weight_that_it_was_made_from(speller: Speller, name: str) -> None:
    made = with_precision(speller, name, CPU)
    assert not [module for module in made.modules() if isinstance(module, Linear | Readout)]
    assert made.inner is made.again
    assert {name for name, _ in made.named_parameters()} == {"table.weight", "norm.weight", "norm.bias"}


def test_what_was_a_weight_is_freed_with_the_model() -> None:
    speller = Speller()
    weights = [weakref.ref(speller.inner.weight), weakref.ref(speller.table.weight)]
    made = with_precision(speller, "int8", CPU)
    del speller
    gc.collect()
    assert [weight() for weight in weights] == [None, None]
    assert made(torch.tensor([[1]])).isfinite().all()


@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("levels", [127, 63])
def test_bytes_lose_no_more_than_rounding_must(rows: int, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side is off by half a level at most, so the product of K of them by K (x e_w + w e_x + e_w e_x)."""
    monkeypatch.setattr(precision, "LEVELS", levels)
    x, weight, bias = 3 * torch.randn(rows, 96) ** 3, torch.randn(40, 96) ** 3, torch.randn(40)
    half_x = x.abs().amax(1, keepdim=True) / 127 / 2  # (rows, 1)
    half_weight = weight.abs().amax(1) / levels / 2  # (outputs,)
    bound = x.abs().sum(1, keepdim=True) * half_weight + weight.abs().sum(1) * half_x + 96 * half_x * half_weight
    off = (QuantizedLinear(weight, bias)(x) - (x.double() @ weight.double().T + bias)).abs()
    assert (off <= bound + 1e-4).all()
    assert off.max() > 0


def test_bytes_are_exact_where_the_numbers_are_bytes() -> None:
    levels = precision.LEVELS
    x, weight = torch.randint(-127, 128, (6, 50)).float(), torch.randint(-levels, levels + 1, (9, 50)).float()
    x[:, 0], weight[:, 0] = 127, -levels
    assert_close(QuantizedLinear(weight, None)(x), x @ weight.T, rtol=1e-5, atol=0.5)


def test_activations_go_to_the_nearest_byte() -> None:
    x = torch.tensor([[127.0, 10.6, -10.6, 3.4, -3.4], [-127.0, 0.6, 0.4, -0.6, 126.7]])
    assert_close(QuantizedLinear(torch.eye(5), None)(x), x.round(), atol=1e-3, rtol=0)


def test_the_worst_sum_does_not_overflow() -> None:
    x, weight = torch.ones(2, 4096), torch.ones(8, 4096)
    assert_close(QuantizedLinear(weight, None)(x), x @ weight.T, rtol=1e-3, atol=0)
    assert_close(QuantizedLinear(-weight, None)(x), -x @ weight.T, rtol=1e-3, atol=0)


def test_a_row_does_not_see_its_neighbors() -> None:
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
def test_taps_listen_to_prepared_models(name: str, pairs: Pairs) -> None:
    model = tiny_model(PLAIN[0])
    made = with_precision(model, name, CPU)

    def hidden() -> Tensor:
        return made.step(pairs.target, made.start(pairs.source, pairs.mask, room=0)).hidden

    with torch.inference_mode():
        alone = hidden()
        with record(made, "decoder.*.out") as seen:
            assert torch.equal(hidden(), alone)
        assert len(seen) == 2
        with ablate(made, "decoder.0.out"):
            assert not torch.equal(hidden(), alone)


@pytest.mark.parametrize("name", PRECISIONS)
def test_preparing_in_inference_mode_is_the_same(speller: Speller, name: str) -> None:
    tokens = torch.arange(6)[None]
    with torch.inference_mode():
        within = with_precision(speller, name, CPU)
        assert torch.equal(within(tokens), with_precision(speller, name, CPU)(tokens))
    assert torch.equal(within(tokens), with_precision(speller, name, CPU)(tokens))


def test_an_unknown_precision_is_refused(speller: Speller) -> None:
    with pytest.raises(ConfigError, match=r"unknown precision 'int9'; expected one of: fp32, bf16, int8") as refused:
        with_precision(speller, "int9", CPU)
    assert refused.value.hint == "did you mean 'int8'?"


def test_bytes_are_for_cpus(speller: Speller) -> None:
    with pytest.raises(ConfigError, match=r"given precision 'int8' on device 'meta', expected device 'cpu'"):
        with_precision(speller, "int8", torch.device("meta"))
