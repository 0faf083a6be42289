"""Every token is answered by the experts that its gate chose and by no other, and losses keep all of them in use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VOCAB, Pairs, Speaker, config_class, logits_of, refused, unsettle
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.models import MODELS
from heedful.models.gnmt import GNMTConfig
from heedful.models.transformer import TransformerConfig
from heedful.nn.experts import (
    Experts,
    RoutingRecord,
    balance_losses,
    expert_utilization,
    has_grouped_products,
    selection_probabilities,
    squared_variation,
)
from heedful.nn.hooks import ablate, record

DIM, HIDDEN, COUNT, USED = 16, 24, 8, 2


def made(count: int = COUNT, used: int = USED) -> Experts:
    experts = Experts(DIM, HIDDEN, count, used)
    torch.nn.init.normal_(experts.choose)
    return experts.eval()


def by_hand(experts: Experts, x: Tensor) -> Tensor:
    """One token after another, straight from the formulas; x (tokens, dim)."""
    answers = []
    for token in x:
        scores = token @ experts.choose[: experts.count].T
        best = scores.argsort(descending=True)[: experts.used]
        weights = scores[best].softmax(0)
        parts = [w * functional.relu(token @ experts.rise[i]) @ experts.fall[i] for w, i in zip(weights, best, strict=True)]
        answers.append(torch.stack(parts).sum(0))
    return torch.stack(answers)


@pytest.fixture(params=[True, False], ids=["grouped", "all"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By products of groups, and as a GPU does that has none."""
    monkeypatch.setattr("heedful.nn.experts.has_grouped_products", lambda device, dtype: request.param)


@pytest.mark.parametrize(("count", "used"), [(8, 2), (3, 2), (9, 4)])
def test_the_answer_is_the_weighted_sum_of_the_chosen_experts(count: int, used: int) -> None:
    experts, x = made(count, used), torch.randn(2, 7, DIM)
    assert_close(experts(x), by_hand(experts, x.flatten(0, 1)).view_as(x), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_formula() -> None:
    experts, x = made(), torch.randn(11, DIM, requires_grad=True)
    wanted = (x, *experts.parameters())
    direction = torch.randn(11, DIM)
    ours = torch.autograd.grad((experts(x) * direction).sum(), wanted)
    theirs = torch.autograd.grad((by_hand(experts, x) * direction).sum(), wanted)
    for owned_slots, other in zip(ours, theirs, strict=True):
        assert_close(owned_slots, other, atol=1e-5, rtol=1e-4)


def test_the_work_for_a_token_does_not_depend_on_how_many_experts_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    product, work = functional.grouped_mm, []

    def counted(given: Tensor, weights: Tensor, **options: Any) -> Tensor:
        work.append(given.shape[0] * weights.shape[-2] * weights.shape[-1])
        return product(given, weights, **options)

    monkeypatch.setattr("heedful.nn.experts.has_grouped_products", lambda device, dtype: True)
    monkeypatch.setattr(functional, "grouped_mm", counted)
    for count in (4, 32):
        made(count)(torch.randn(10, DIM))
    assert work == [10 * USED * DIM * HIDDEN] * 4  # two experts' products for each token, up and down, of both mixtures


def test_the_host_is_not_asked_where_there_is_no_product_of_groups() -> None:
    assert has_grouped_products(torch.device("cpu"), torch.float32)
    assert not has_grouped_products(torch.device("cuda"), torch.float32), "told without asking the GPU"


@pytest.mark.parametrize("training", [True, False])
def test_exactly_k_gates_are_open_and_add_up_to_one(training: bool) -> None:
    experts, x = made().train(training), torch.randn(50, DIM)
    with record(experts, "gates") as seen:
        experts(x)
    assert (seen["gates"] > 0).sum(-1).tolist() == [USED] * 50
    assert_close(seen["gates"].sum(-1), torch.ones(50))


def test_there_is_noise_in_training_only() -> None:
    experts, x = made(), torch.randn(50, DIM)
    assert torch.equal(experts(x), experts(x))
    assert not torch.allclose(experts.train()(x), experts(x))


def test_a_gate_that_is_held_shut_gives_nothing() -> None:
    experts, x = made(), torch.randn(5, DIM)
    with ablate(experts, "gates"):
        assert not experts(x).any()


def test_the_load_is_the_probability_of_being_chosen_again() -> None:
    """For every expert its noise is drawn anew, many times, while that of the others stays."""
    clean, spreads = torch.randn(6, 5), torch.rand(6, 5) + 0.3  # (tokens, experts)
    noisy = clean + torch.randn(6, 5) * spreads
    found = selection_probabilities(clean, noisy, spreads, USED)
    for expert in range(5):
        redrawn = noisy.repeat(20000, 1, 1)  # (draws, tokens, experts)
        redrawn[..., expert] = clean[:, expert] + torch.randn(20000, 6) * spreads[:, expert]
        again = (redrawn.topk(USED).indices == expert).any(-1).float().mean(0)  # (tokens,)
        assert_close(found[:, expert], again, atol=0.015, rtol=0)


def test_the_importance_is_the_sum_of_the_gates_of_real_tokens() -> None:
    experts, x = made().train(), torch.randn(2, 6, DIM)
    real = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]).bool()
    record = RoutingRecord(real, [])
    with record(experts, "gates") as seen:
        experts(x, record)
    total = seen["gates"][real.flatten()].sum(0)
    assert_close(record.losses[0][0], total.var(correction=0) / total.mean() ** 2)


def test_unevenness_of_equals_is_zero_and_of_one_alone_is_largest() -> None:
    assert float(squared_variation(torch.full((4,), 3.0))) == 0.0
    assert float(squared_variation(torch.tensor([8.0, 0, 0, 0]))) == pytest.approx(3.0)  # n - 1


def test_losses_reach_the_gate_alone() -> None:
    experts = made().train()
    record = RoutingRecord(None, [])
    experts(torch.randn(20, DIM), record)
    losses = balance_losses(record.losses[0], weight=0.1)
    total = sum((loss.total / loss.count for loss in losses.values()), torch.zeros(()))
    (slope,) = torch.autograd.grad(total, [experts.choose], retain_graph=True)
    assert slope.abs().amax(-1).min() > 0  # of every gate and every noise
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(total, [experts.rise])
    assert_close(losses["expert_importance"].total + losses["expert_load"].total, 0.1 * record.losses[0].sum())


def trained(weight: float) -> Tensor:
    """The share of each of eight experts after learning to turn four kinds of vectors in four ways."""
    draws = torch.Generator().manual_seed(2)
    centers, turns = torch.randn(4, DIM, generator=draws), torch.randn(4, DIM, DIM, generator=draws) / 4
    torch.manual_seed(2)
    experts = Experts(DIM, HIDDEN, COUNT, USED)
    with torch.no_grad():
        experts.choose[0] += centers.sum(0) / 4  # one of them has a small lead
    adam = torch.optim.Adam(experts.parameters(), lr=1e-2)
    for _ in range(150):
        kind = torch.randint(4, (256,), generator=draws)
        x = centers[kind] + 0.5 * torch.randn(256, DIM, generator=draws)
        wanted = torch.einsum("tij,tj->ti", turns[kind], x)
        record = RoutingRecord(None, [])
        loss = functional.mse_loss(experts(x, record), wanted) + weight * record.losses[0].sum()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    with record(experts.eval(), "gates") as seen, torch.no_grad():
        experts(centers.repeat(64, 1) + 0.5 * torch.randn(256, DIM, generator=draws))
    return expert_utilization(seen["gates"])


def test_without_the_losses_few_experts_do_the_work_and_with_them_all_do() -> None:
    alone, balanced = trained(0.0), trained(0.1)
    assert_close(alone.sum(), torch.ones(()))
    assert float(alone.max() * COUNT) > 2  # largest / mean, as in the paper's table 6
    assert float(balanced.max() * COUNT) < 1.5


def with_experts(family: str) -> Speaker:
    small: dict[str, Any] = {"dim": DIM, "experts": 4, "experts_balance": 0.5}
    of = {"transformer": {"layers": 2, "heads": 2, "feed_forward": HIDDEN}, "gnmt": {"layers": 3, "experts_size": HIDDEN}}
    model: Speaker = MODELS[family](config_class(family)(**small, **of[family]), VOCAB, VOCAB)
    return unsettle(model).train()


@pytest.mark.parametrize(("family", "places"), [("transformer", 4), ("gnmt", 3)])
def test_a_model_wants_what_all_its_experts_want_and_does_not_count_padded_sources(
    family: str, places: int, pairs: Pairs
) -> None:
    model = with_experts(family)
    with record(model, "*.gates") as seen:
        step = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0))
    real = pairs.mask.flatten()
    used = [(gates[real] if name.startswith("encoder") else gates).sum(0) for name, gates in seen.items()]
    assert len(used) == places
    assert_close(
        step.losses["expert_importance"].total.detach(), 0.5 * torch.stack([squared_variation(one) for one in used]).sum()
    )
    assert step.losses["expert_load"].total > 0
    gates = [parameter for name, parameter in model.named_parameters() if name.endswith(".choose")]
    slopes = torch.autograd.grad(step.losses["expert_load"].total, gates)
    assert len(slopes) == places and all(slope.any() for slope in slopes)
    assert not model.eval().step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).losses


def test_between_layers_of_gnmt_stands_what_was_said_and_what_the_experts_add(pairs: Pairs) -> None:
    """With experts that say nothing it is the plain model."""
    model = with_experts("gnmt").eval()
    plain = MODELS["gnmt"](GNMTConfig(dim=DIM, layers=3), VOCAB, VOCAB).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if ".between." not in name})
    assert not torch.allclose(logits_of(model, pairs), logits_of(plain, pairs), atol=1e-3)
    with ablate(model, "*.gates"):
        assert torch.equal(logits_of(model, pairs), logits_of(plain, pairs))


def test_experts_that_do_not_fit_are_refused() -> None:
    found = refused(TransformerConfig, dim=20, heads=2, feed_forward=30, experts=4, experts_used=4, activation="swiglu")
    assert found == {
        "dim": "given 20, expected a multiple of 8 in a model with experts",
        "feed_forward": "given 30, expected a multiple of 8 in a model with experts",
        "experts_used": "given 4, expected at least 2, so that gates have a gradient, and fewer than model.experts, which is 4",
        "activation": "given 'swiglu', expected 'relu' or 'gelu' in a model with experts",
    }
    assert "has no effect because model.experts is 0" in refused(TransformerConfig, experts_used=2)["experts_used"]
    found = refused(GNMTConfig, dim=20, layers=2, decoder_layers=1, experts=4, experts_used=1)
    assert found == {
        "dim": "given 20, expected a multiple of 8 in a model with experts",
        "experts_used": "given 1, expected at least 2, so that gates have a gradient, and fewer than model.experts, which is 4",
        "experts": "given 4, expected 0, or more model.layers, since experts are placed between layers",
    }
    assert "has no effect because model.experts is 0" in refused(GNMTConfig, experts_size=8)["experts_size"]
