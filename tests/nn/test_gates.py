"""Hard-Concrete gates: the published values, their sampling distribution, and closed gates that remove heads."""

from __future__ import annotations

import pytest
import torch
from tiny import Pairs, Variant, config_problems, logits_of, perturb, tiny_config, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.models import MODELS
from heedful.models.transformer import Transformer
from heedful.nn.gates import (
    BETA,
    EPSILON,
    GatedOutput,
    GatesConfig,
    add_gates,
    gates,
    inference_gate,
    open_probability,
    prunable_attentions,
    sample_gate,
)
from heedful.nn.hooks import hook
from heedful.nn.linear import linear

LOG_A = torch.tensor([-3.0, 0.0, 3.0])


def transformer(family: str = "transformer") -> Transformer:
    """A new model without dropout, in which only gates are random."""
    torch.manual_seed(2)
    model: Transformer = MODELS[family](tiny_config(family, {"dropout": 0.0}), 11, 11)
    return perturb(model).eval()


def test_the_published_values() -> None:
    assert_close(open_probability(LOG_A), torch.tensor([0.0990, 0.6881, 0.9779]), atol=5e-5, rtol=0)
    assert_close(inference_gate(LOG_A), torch.tensor([0.0, 0.5, 1.0]))


def test_samples_are_open_with_the_probability_of_the_penalty() -> None:
    samples = sample_gate(LOG_A.repeat(40_000, 1))  # (draws, gates)
    assert_close((samples > 0).float().mean(0), open_probability(LOG_A), atol=0.01, rtol=0)
    assert float(samples.min()) == 0 and float(samples.max()) == 1


def test_a_sample_equals_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    u = torch.tensor([0.2, 0.5, 0.9])
    monkeypatch.setattr(Tensor, "uniform_", lambda x, low, high: x.copy_(u.clamp(low, high)))
    s = 1 / (1 + torch.exp(-(torch.log(u) - torch.log(1 - u) + LOG_A) / BETA))
    assert_close(sample_gate(LOG_A), (s * 1.2 - 0.1).clamp(0, 1))


@pytest.mark.parametrize("u", [0.0, 1.0])
def test_extreme_samples_have_finite_gradients(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "uniform_", lambda x, low, high: x.fill_(low if u == 0 else high))
    log_a = LOG_A.clone().requires_grad_()
    torch.autograd.backward(sample_gate(log_a).sum())
    assert log_a.grad is not None and log_a.grad.isfinite().all() and EPSILON > 0


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_new_gates_change_outputs_in_training_only(family: str, pairs: Pairs) -> None:
    model = transformer(family)
    before = logits_of(model, pairs)
    add_gates(model)
    assert gates(model) and torch.equal(logits_of(model, pairs), before)
    model.train()
    assert not torch.equal(logits_of(model, pairs), logits_of(model, pairs))


def test_a_closed_gate_equals_an_ablated_head(pairs: Pairs) -> None:
    model = transformer()
    name, closed = "decoder.1.cross_attention", 1

    def zero_head(point: str, context: Tensor) -> Tensor:
        return context * (torch.arange(context.shape[1]) != closed)[:, None, None]

    with hook(model, f"{name}.context", zero_head):
        expected = logits_of(model, pairs)
    assert (expected - logits_of(model, pairs)).abs().max() > 1e-3
    add_gates(model, ["cross"])
    gates(model)[name].data[closed] = -5.0
    assert_close(logits_of(model, pairs), expected)


def test_gates_are_added_to_the_given_kinds_only() -> None:
    model = transformer()
    add_gates(model, ["encoder", "cross"])
    assert list(gates(model)) == [
        "encoder.0.self_attention",
        "encoder.1.self_attention",
        "decoder.0.cross_attention",
        "decoder.1.cross_attention",
    ]
    assert len(prunable_attentions(model)) == 6


def test_weights_keep_their_names() -> None:
    model = transformer()
    before = set(model.state_dict())
    add_gates(model)
    added = set(model.state_dict()) - before
    assert before < set(model.state_dict()) and added == {f"{name}.out.log_a" for name in gates(model)}


def test_a_kind_without_heads_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no attention heads of kind 'within'; available kinds: encoder, decoder, cross"):
        add_gates(transformer(), ["within"])
    with pytest.raises(ConfigError, match="the model has no attention heads; available kinds: none"):
        add_gates(tiny_model(Variant("luong", ())))


def test_options_without_a_penalty_are_errors() -> None:
    assert config_problems(GatesConfig, kinds=("encoder",), speed=3.0).keys() == {"kinds", "speed"}


def heads_kept(penalty: float) -> int:
    """Train the gates of eight heads with weights w_i that compute y = w x; return the number of open gates."""
    torch.manual_seed(0)
    weights = torch.tensor([0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]).sqrt()
    gated = GatedOutput(linear(8, 1), 8)
    with torch.no_grad():
        gated.weight.copy_(weights)
    optimizer = torch.optim.Adam([gated.log_a], lr=0.2)
    for _ in range(120):
        x = torch.randn(64, 8)
        loss = nn.functional.mse_loss(gated(x)[:, 0], x @ weights) + penalty * open_probability(gated.log_a).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return int((inference_gate(gated.log_a) > 0).sum())


def test_a_higher_penalty_keeps_fewer_heads() -> None:
    kept = [heads_kept(penalty) for penalty in (0.0, 0.3, 30.0)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 8 and 2 <= kept[1] <= 6 and kept[2] == 0
