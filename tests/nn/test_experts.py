"""Every token uses the experts that its gate chose and no others, and balancing losses keep all of them in use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VOCAB, Pairs, config_class, config_problems, logits_of, perturb
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
from heedful.nn.model import SequenceModel

DIM, HIDDEN, COUNT, USED = 16, 24, 8, 2


def make_experts(count: int = COUNT, used: int = USED) -> Experts:
    experts = Experts(DIM, HIDDEN, count, used)
    torch.nn.init.normal_(experts.choose)
    return experts.eval()


def by_hand(experts: Experts, x: Tensor) -> Tensor:
    """The formula for one token at a time; x (tokens, dim)."""
    outputs = []
    for token in x:
        scores = token @ experts.choose[: experts.count].T
        best = scores.argsort(descending=True)[: experts.used]
        weights = scores[best].softmax(0)
        parts = [w * functional.relu(token @ experts.rise[i]) @ experts.fall[i] for w, i in zip(weights, best, strict=True)]
        outputs.append(torch.stack(parts).sum(0))
    return torch.stack(outputs)


@pytest.fixture(params=[True, False], ids=["grouped", "all"], autouse=True)
def _both_implementations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With grouped matrix products, and without, as on a GPU that has none."""
    monkeypatch.setattr("heedful.nn.experts.has_grouped_products", lambda device, dtype: request.param)


@pytest.mark.parametrize(("count", "used"), [(8, 2), (3, 2), (9, 4)])
def test_the_output_is_the_weighted_sum_of_the_chosen_experts(count: int, used: int) -> None:
    experts, x = make_experts(count, used), torch.randn(2, 7, DIM)
    assert_close(experts(x), by_hand(experts, x.flatten(0, 1)).view_as(x), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_formula() -> None:
    experts, x = make_experts(), torch.randn(11, DIM, requires_grad=True)
    variables = (x, *experts.parameters())
    direction = torch.randn(11, DIM)
    ours = torch.autograd.grad((experts(x) * direction).sum(), variables)
    theirs = torch.autograd.grad((by_hand(experts, x) * direction).sum(), variables)
    for gradient, expected in zip(ours, theirs, strict=True):
        assert_close(gradient, expected, atol=1e-5, rtol=1e-4)


def test_the_work_per_token_does_not_depend_on_the_number_of_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    product, work = functional.grouped_mm, []

    def counted(inputs: Tensor, weights: Tensor, **options: Any) -> Tensor:
        work.append(inputs.shape[0] * weights.shape[-2] * weights.shape[-1])
        return product(inputs, weights, **options)

    monkeypatch.setattr("heedful.nn.experts.has_grouped_products", lambda device, dtype: True)
    monkeypatch.setattr(functional, "grouped_mm", counted)
    for count in (4, 32):
        make_experts(count)(torch.randn(10, DIM))
    assert work == [10 * USED * DIM * HIDDEN] * 4  # two experts' products for each token, up and down, of both mixtures


def test_grouped_products_are_known_without_querying_the_gpu() -> None:
    assert has_grouped_products(torch.device("cpu"), torch.float32)
    assert not has_grouped_products(torch.device("cuda"), torch.float32)


@pytest.mark.parametrize("training", [True, False])
def test_exactly_k_gates_are_nonzero_and_sum_to_one(training: bool) -> None:
    experts, x = make_experts().train(training), torch.randn(50, DIM)
    with record(experts, "gates") as recorded:
        experts(x)
    assert (recorded["gates"] > 0).sum(-1).tolist() == [USED] * 50
    assert_close(recorded["gates"].sum(-1), torch.ones(50))


def test_there_is_noise_in_training_only() -> None:
    experts, x = make_experts(), torch.randn(50, DIM)
    assert torch.equal(experts(x), experts(x))
    assert not torch.allclose(experts.train()(x), experts(x))


def test_ablated_gates_give_zeros() -> None:
    experts, x = make_experts(), torch.randn(5, DIM)
    with ablate(experts, "gates"):
        assert not experts(x).any()


def test_the_load_is_the_probability_of_being_chosen_with_new_noise() -> None:
    """The noise of each expert is resampled many times while that of the others stays."""
    clean, noise_std = torch.randn(6, 5), torch.rand(6, 5) + 0.3  # (tokens, experts)
    noisy = clean + torch.randn(6, 5) * noise_std
    probabilities = selection_probabilities(clean, noisy, noise_std, USED)
    for expert in range(5):
        resampled = noisy.repeat(20000, 1, 1)  # (draws, tokens, experts)
        resampled[..., expert] = clean[:, expert] + torch.randn(20000, 6) * noise_std[:, expert]
        frequency = (resampled.topk(USED).indices == expert).any(-1).float().mean(0)  # (tokens,)
        assert_close(probabilities[:, expert], frequency, atol=0.015, rtol=0)


def test_the_importance_is_the_sum_of_the_gates_of_real_tokens() -> None:
    experts, x = make_experts().train(), torch.randn(2, 6, DIM)
    real = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]).bool()
    routing_record = RoutingRecord(real, [])
    with record(experts, "gates") as recorded:
        experts(x, routing_record)
    total = recorded["gates"][real.flatten()].sum(0)
    assert_close(routing_record.losses[0][0], total.var(correction=0) / total.mean() ** 2)


def test_squared_variation_is_zero_for_equal_and_largest_for_single_loads() -> None:
    assert float(squared_variation(torch.full((4,), 3.0))) == 0.0
    assert float(squared_variation(torch.tensor([8.0, 0, 0, 0]))) == pytest.approx(3.0)  # n - 1


def test_balancing_losses_have_gradients_for_the_router_only() -> None:
    experts = make_experts().train()
    routing_record = RoutingRecord(None, [])
    experts(torch.randn(20, DIM), routing_record)
    losses = balance_losses(routing_record.losses[0], weight=0.1)
    total = sum((loss.total / loss.count for loss in losses.values()), torch.zeros(()))
    (gradient,) = torch.autograd.grad(total, [experts.choose], retain_graph=True)
    assert gradient.abs().amax(-1).min() > 0  # of every gate and noise weight
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(total, [experts.rise])
    assert_close(losses["expert_importance"].total + losses["expert_load"].total, 0.1 * routing_record.losses[0].sum())


def train(weight: float) -> Tensor:
    """Utilization of eight experts after learning four linear maps for four clusters of vectors."""
    draws = torch.Generator().manual_seed(2)
    centers, turns = torch.randn(4, DIM, generator=draws), torch.randn(4, DIM, DIM, generator=draws) / 4
    torch.manual_seed(2)
    experts = Experts(DIM, HIDDEN, COUNT, USED)
    with torch.no_grad():
        experts.choose[0] += centers.sum(0) / 4  # one expert starts with a small advantage
    adam = torch.optim.Adam(experts.parameters(), lr=1e-2)
    for _ in range(150):
        kind = torch.randint(4, (256,), generator=draws)
        x = centers[kind] + 0.5 * torch.randn(256, DIM, generator=draws)
        target = torch.einsum("tij,tj->ti", turns[kind], x)
        routing_record = RoutingRecord(None, [])
        loss = functional.mse_loss(experts(x, routing_record), target) + weight * routing_record.losses[0].sum()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    with record(experts.eval(), "gates") as recorded, torch.no_grad():
        experts(centers.repeat(64, 1) + 0.5 * torch.randn(256, DIM, generator=draws))
    return expert_utilization(recorded["gates"])


def test_balancing_losses_prevent_the_collapse_to_few_experts() -> None:
    alone, balanced = train(0.0), train(0.1)
    assert_close(alone.sum(), torch.ones(()))
    assert float(alone.max() * COUNT) > 2  # largest / mean, as in the paper's table 6
    assert float(balanced.max() * COUNT) < 1.5


def with_experts(family: str) -> SequenceModel:
    small: dict[str, Any] = {"dim": DIM, "experts": 4, "experts_balance": 0.5}
    of = {"transformer": {"layers": 2, "heads": 2, "feed_forward": HIDDEN}, "gnmt": {"layers": 3, "experts_size": HIDDEN}}
    model: SequenceModel = MODELS[family](config_class(family)(**small, **of[family]), VOCAB, VOCAB)
    return perturb(model).train()


@pytest.mark.parametrize(("family", "places"), [("transformer", 4), ("gnmt", 3)])
def test_balancing_losses_cover_all_layers_and_ignore_padding(family: str, places: int, pairs: Pairs) -> None:
    model = with_experts(family)
    with record(model, "*.gates") as recorded:
        step = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0))
    real = pairs.mask.flatten()
    used = [(gates[real] if name.startswith("encoder") else gates).sum(0) for name, gates in recorded.items()]
    assert len(used) == places
    assert_close(
        step.losses["expert_importance"].total.detach(), 0.5 * torch.stack([squared_variation(gates) for gates in used]).sum()
    )
    assert step.losses["expert_load"].total > 0
    gates = [parameter for name, parameter in model.named_parameters() if name.endswith(".choose")]
    gradients = torch.autograd.grad(step.losses["expert_load"].total, gates)
    assert len(gradients) == places and all(gradient.any() for gradient in gradients)
    assert not model.eval().step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).losses


def test_expert_layers_of_gnmt_are_residual(pairs: Pairs) -> None:
    """With ablated experts it is the plain model."""
    model = with_experts("gnmt").eval()
    plain = MODELS["gnmt"](GNMTConfig(dim=DIM, layers=3), VOCAB, VOCAB).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if ".between." not in name})
    assert not torch.allclose(logits_of(model, pairs), logits_of(plain, pairs), atol=1e-3)
    with ablate(model, "*.gates"):
        assert torch.equal(logits_of(model, pairs), logits_of(plain, pairs))


def test_invalid_expert_options_are_errors() -> None:
    problems = config_problems(
        TransformerConfig, dim=20, heads=2, feed_forward=30, experts=4, experts_used=4, activation="swiglu"
    )
    assert problems == {
        "dim": "given 20, expected a multiple of 8 in a model with experts",
        "feed_forward": "given 30, expected a multiple of 8 in a model with experts",
        "experts_used": "given 4, expected at least 2, so that gates have a gradient, and fewer than model.experts, which is 4",
        "activation": "given 'swiglu', expected 'relu' or 'gelu' in a model with experts",
    }
    assert "has no effect because model.experts is 0" in config_problems(TransformerConfig, experts_used=2)["experts_used"]
    problems = config_problems(GNMTConfig, dim=20, layers=2, decoder_layers=1, experts=4, experts_used=1)
    assert problems == {
        "dim": "given 20, expected a multiple of 8 in a model with experts",
        "experts_used": "given 1, expected at least 2, so that gates have a gradient, and fewer than model.experts, which is 4",
        "experts": "given 4, expected 0, or more model.layers, since experts are placed between layers",
    }
    assert "has no effect because model.experts is 0" in config_problems(GNMTConfig, experts_size=8)["experts_size"]
