"""Saliency equals finite differences, and integrated gradients sum to the difference of log-probabilities."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from tiny import END, FAMILIES, Pairs, Variant, forward_of, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.inspection.measures.saliency import Saliency, agreement, midpoints, scaled_embeddings
from heedful.inspection.measures.saliency import saliency as saliency_of
from heedful.nn.decoder_state import State, Step
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import hook_points
from heedful.nn.model import SequenceModel


def exact(family: str) -> SequenceModel:
    """Return a model in double precision, for finite differences."""
    return copy.deepcopy(tiny_model(Variant(family, ()))).double()


def parts(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    target_in = pairs.target[:1, :4]
    return pairs.source[:1], target_in, torch.cat((target_in[:, 1:], torch.tensor([[END]])), dim=1)


def saliency(
    model: SequenceModel, source: Tensor, target_in: Tensor, target_out: Tensor, scales: Sequence[float] = (1.0,)
) -> Saliency:
    """Of the next token at each position."""
    ids = target_out[0].tolist()

    def score(hidden: Tensor) -> Tensor:
        return model.project(hidden).log_softmax(-1)[:, range(len(ids)), ids]

    return saliency_of(model, forward_of(source, target_in), score, len(ids), scales)


def logs(model: SequenceModel, given: tuple[Tensor, Tensor, Tensor], scales: tuple[Tensor, Tensor]) -> Tensor:
    """Return log p of each target token with scaled embeddings of source and target: scales (time,) each."""
    source, target_in, target_out = given
    use = iter(scales)

    def scale(module: nn.Module, tokens: object, out: Tensor) -> Tensor:
        return out * next(use)[:, None]

    tables = [module for module in model.embedding.modules() if isinstance(module, nn.Embedding)]
    hooks = [table.register_forward_hook(scale) for table in tables]
    with torch.no_grad():
        result = model.forced_logits(source, None, target_in)[0].log_softmax(-1)
    for hook in hooks:
        hook.remove()
    return result.gather(-1, target_out[0][:, None])[:, 0]


def ones(given: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.ones(given[0].shape[1], dtype=torch.float64), torch.ones(given[1].shape[1], dtype=torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_times_input_equals_finite_differences_of_the_embedding_scale(family: str, pairs: Pairs) -> None:
    """d/da log p(y_t | a x_i) at a = 1, by central differences."""
    model, given, small = exact(family), parts(pairs), 1e-5
    result = saliency(model, *given)
    for side in (0, 1):
        for position in range(given[side].shape[1]):
            more, less = ones(given), ones(given)
            more[side][position] += small
            less[side][position] -= small
            expected = (logs(model, given, more) - logs(model, given, less)) / (2 * small)
            assert_close(result[side][:, position].double(), expected, atol=1e-5, rtol=1e-4)
    assert result.source.abs().max() > 1e-3


@pytest.mark.parametrize("family", ["transformer", "gpt", "luong"])
def test_integrated_gradients_sum_to_the_difference_from_zero_embeddings(family: str, pairs: Pairs) -> None:
    model, given = exact(family), parts(pairs)
    result = saliency(model, *given, midpoints(100))
    full, zero = ones(given), tuple(torch.zeros_like(one) for one in ones(given))
    expected = logs(model, given, full) - logs(model, given, (zero[0], zero[1]))
    assert expected.abs().max() > 0.1
    assert_close((result.source.sum(1) + result.target.sum(1)).double(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_holds_and_is_positive(family: str, pairs: Pairs) -> None:
    result = saliency(exact(family), *parts(pairs))
    assert (result.source.abs() <= result.source_bound * (1 + 1e-5)).all() and (result.source_bound > 0).all()
    assert (result.target.abs() <= result.target_bound * (1 + 1e-5) + 1e-12).all()


def test_normalized_embeddings_have_zero_saliency_but_a_positive_bound() -> None:
    """norm(a x) = norm(x), so x . d/dx = 0 (Euler); a model of one norm and an output projection."""

    class Normed(SequenceModel):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm = Embeddings(5, 5, 8, tie="all", std=0.0), nn.LayerNorm(8, eps=0.0)

        def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
            return State(None, None)

        def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
            return Step(self.norm(self.embedding.embed("target", tokens)), state, {})

        def project(self, hidden: Tensor) -> Tensor:
            return self.embedding.project(hidden)

    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3]])
    result = saliency(Normed(), tokens[:, :0], tokens, tokens)
    assert result.target.abs().max() < 1e-4
    assert result.target_bound.max() > 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_later_tokens_have_no_saliency_for_earlier_ones(family: str, pairs: Pairs) -> None:
    result = saliency(tiny_model(Variant(family, ())), *parts(pairs))
    assert torch.equal(result.target.triu(1), torch.zeros_like(result.target))
    assert result.target.tril().abs().sum() > 0


def test_a_language_model_has_no_source_saliency(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", ()))
    source, target_in, target_out = parts(pairs)
    result = saliency(model, source[:, :0], target_in, target_out)
    assert result.source.shape == (4, 0) and result.target.abs().sum() > 0


def test_saliency_leaves_the_model_unchanged(pairs: Pairs) -> None:
    model = copy.deepcopy(tiny_model(Variant("transformer", ()))).train()
    with torch.inference_mode():
        result: Saliency = saliency(model, *parts(pairs))
    assert model.training and result.source.isfinite().all()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(KeyboardInterrupt), scaled_embeddings(model, 1.0):
        raise KeyboardInterrupt
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(point.hooks for point in hook_points(model).values())


def test_agreement_is_one_for_one_order_and_minus_one_for_its_reverse() -> None:
    order = torch.tensor([[0.1, 0.5, 0.2, 0.9]])
    assert agreement(order, order**3) == pytest.approx(1)
    assert agreement(order, -order) == pytest.approx(-1)
    one_swap = torch.tensor([[0.1, 0.2, 0.5, 0.9]])  # one of six pairs is swapped
    assert agreement(order, one_swap) == pytest.approx(4 / 6)
    assert agreement(torch.cat((order, order)), torch.cat((order, -order))) == pytest.approx(0)
