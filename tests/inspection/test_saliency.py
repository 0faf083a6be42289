"""Saliency: each number is a derivative that finite differences find, too, and integrated gradients add up."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import END, SPEAKING, Pairs, Speaker, Variant, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.inspection.saliency import Saliency, agreement, midpoints, saliency, scaled_embeddings
from heedful.nn.decoder_state import State, Step
from heedful.nn.hooks import hook_points


def exact(family: str) -> Speaker:
    """In double precision, so that small differences can be taken."""
    return copy.deepcopy(tiny_model(Variant(family, ()))).double()


def parts(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    target_in = pairs.target[:1, :4]
    return pairs.source[:1], target_in, torch.cat((target_in[:, 1:], torch.tensor([[END]])), dim=1)


def logs(model: Speaker, given: tuple[Tensor, Tensor, Tensor], scales: tuple[Tensor, Tensor]) -> Tensor:
    """log p of each target token when the embeddings of source and target are multiplied: scales (time,) each."""
    source, target_in, target_out = given
    use = iter(scales)

    def hear(module: nn.Module, tokens: object, out: Tensor) -> Tensor:
        return out * next(use)[:, None]

    tables = [module for name, module in model.named_modules() if name.endswith("embedding")]
    hooks = [table.register_forward_hook(hear) for table in tables]
    with torch.no_grad():
        hidden = model.step(target_in, model.start(source, None, room=0)).hidden
        found = model.project(hidden)[0].log_softmax(-1)
    for hook in hooks:
        hook.remove()
    return found.gather(-1, target_out[0][:, None])[:, 0]


def ones(given: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.ones(given[0].shape[1], dtype=torch.float64), torch.ones(given[1].shape[1], dtype=torch.float64)


@pytest.mark.parametrize("family", SPEAKING)
def test_gradient_times_input_is_the_change_when_an_embedding_grows(family: str, pairs: Pairs) -> None:
    """d/da log p(y_t | a x_i) at a = 1, by central differences."""
    model, given, small = exact(family), parts(pairs), 1e-5
    found = saliency(model, *given)
    for side in (0, 1):
        for place in range(given[side].shape[1]):
            more, less = ones(given), ones(given)
            more[side][place] += small
            less[side][place] -= small
            expected = (logs(model, given, more) - logs(model, given, less)) / (2 * small)
            assert_close(found[side][:, place].double(), expected, atol=1e-5, rtol=1e-4)
    assert found.source.abs().max() > 1e-3


@pytest.mark.parametrize("family", ["transformer", "gpt", "luong"])
def test_integrated_gradients_add_up_to_the_difference_to_nothing(family: str, pairs: Pairs) -> None:
    model, given = exact(family), parts(pairs)
    found = saliency(model, *given, midpoints(100))
    whole, nothing = ones(given), tuple(torch.zeros_like(one) for one in ones(given))
    expected = logs(model, given, whole) - logs(model, given, (nothing[0], nothing[1]))
    assert expected.abs().max() > 0.1
    assert_close((found.source.sum(1) + found.target.sum(1)).double(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("family", SPEAKING)
def test_the_bound_is_never_passed_and_stands_where_norms_undo_the_length(family: str, pairs: Pairs) -> None:
    found = saliency(exact(family), *parts(pairs))
    assert (found.source.abs() <= found.source_bound * (1 + 1e-5)).all() and (found.source_bound > 0).all()
    assert (found.target.abs() <= found.target_bound * (1 + 1e-5) + 1e-12).all()


def test_growing_an_embedding_that_is_normed_at_once_changes_nothing_but_turning_it_does() -> None:
    """norm(a x) = norm(x), so x . d/dx = 0 (Euler); a model of one norm and its words."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm = nn.Embedding(5, 8), nn.LayerNorm(8, eps=0.0)

        def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
            return State(None, None)

        def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
            return Step(self.norm(self.embedding(tokens)), state, {})

        def project(self, hidden: Tensor) -> Tensor:
            return hidden @ self.embedding.weight.T

    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3]])
    found = saliency(Normed(), tokens[:, :0], tokens, tokens)
    assert found.target.abs().max() < 1e-4
    assert found.target_bound.max() > 1.0


@pytest.mark.parametrize("family", SPEAKING)
def test_a_later_token_bears_on_no_earlier_one(family: str, pairs: Pairs) -> None:
    found = saliency(tiny_model(Variant(family, ())), *parts(pairs))
    assert torch.equal(found.target.triu(1), torch.zeros_like(found.target))
    assert found.target.tril().abs().sum() > 0


def test_a_language_model_reads_no_source(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", ()))
    source, target_in, target_out = parts(pairs)
    found = saliency(model, source[:, :0], target_in, target_out)
    assert found.source.shape == (4, 0) and found.target.abs().sum() > 0


def test_asking_leaves_the_model_as_it_was(pairs: Pairs) -> None:
    model = copy.deepcopy(tiny_model(Variant("transformer", ()))).train()
    with torch.inference_mode():
        found: Saliency = saliency(model, *parts(pairs))
    assert model.training and found.source.isfinite().all()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(KeyboardInterrupt), scaled_embeddings(model, 1.0):
        raise KeyboardInterrupt
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(tap.hooks for tap in hook_points(model).values())


def test_agreement_is_one_for_one_order_and_minus_one_for_its_reverse() -> None:
    order = torch.tensor([[0.1, 0.5, 0.2, 0.9]])
    assert agreement(order, order**3) == pytest.approx(1)
    assert agreement(order, -order) == pytest.approx(-1)
    one_swap = torch.tensor([[0.1, 0.2, 0.5, 0.9]])  # one of six pairs stands the other way round
    assert agreement(order, one_swap) == pytest.approx(4 / 6)
    assert agreement(torch.cat((order, order)), torch.cat((order, -order))) == pytest.approx(0)
