"""Listening changes no bit, interfering ends when its block ends, and what is heard is what was used."""

from __future__ import annotations

import pytest
import torch
from tiny import Pairs, Speaker, logits_of
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.attention import AttentionBias, AttentionCore
from heedful.nn.hooks import ablate, hook, hook_points, patch, record


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def nobody_listens(model: nn.Module) -> bool:
    return bool(hook_points(model)) and not any(tap.hooks for tap in hook_points(model).values())


def first(model: nn.Module) -> str:
    return next(iter(hook_points(model)))


def test_recording_everything_changes_no_bit(plain: Speaker, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)
    with record(plain, "*") as seen:
        during = logits_of(plain, pairs)
    assert torch.equal(during, before)
    assert seen.keys() == hook_points(plain).keys()
    assert nobody_listens(plain)


def test_recording_while_stepping_changes_no_bit(plain: Speaker, pairs: Pairs) -> None:
    def last_of_two_steps() -> Tensor:
        state = plain.step(pairs.target[:, :3], plain.start(pairs.source, pairs.mask, room=4)).state
        return plain.step(pairs.target[:, 3:4], state).hidden

    before = last_of_two_steps()
    with record(plain, "*"):
        assert torch.equal(last_of_two_steps(), before)


def test_what_a_head_found_is_the_values_in_the_proportion_of_the_recorded_weights(plain: Speaker, pairs: Pairs) -> None:
    heads = {name: module for name, module in plain.named_modules() if isinstance(module, AttentionCore)}
    if not heads:
        pytest.skip("it does not attend")
    expected: dict[str, Tensor] = {}
    given: dict[str, tuple[Tensor, Tensor, Tensor, AttentionBias]] = {}
    hooks = [
        module.register_forward_pre_hook(lambda _, arguments, name=name: given.__setitem__(name, arguments))
        for name, module in heads.items()
    ]
    with record(plain, "*") as seen:
        logits_of(plain, pairs)
    for one in hooks:
        one.remove()
    for name, (_, _, value, attention_bias) in given.items():
        weights = seen[f"{name}.weights"]
        mixed = None if attention_bias.mix is None else attention_bias.mix(weights)
        expected[name] = weights @ value if mixed is None else weights @ value + mixed
        assert_close(seen[f"{name}.found"], expected[name], atol=1e-5, rtol=0)
        total = weights.sum(-1)  # 0 where a query sees nothing but padding
        assert_close(total, total.round())
    assert expected.keys() == heads.keys()


def test_patching_in_what_was_recorded_reproduces_the_output(plain: Speaker, pairs: Pairs) -> None:
    with record(plain, "*") as seen:
        before = logits_of(plain, pairs)
    with patch(plain, seen):
        assert_close(logits_of(plain, pairs), before, atol=1e-5, rtol=0)
    assert nobody_listens(plain)


def test_patching_one_place_moves_the_output_to_where_the_value_came_from(plain: Speaker, pairs: Pairs) -> None:
    """The last place before the end decides alone."""
    other = pairs._replace(target=pairs.target.flip(1))
    last = list(hook_points(plain))[-1]
    with record(plain, last) as seen:
        elsewhere = logits_of(plain, other)
    assert not torch.allclose(elsewhere, logits_of(plain, pairs))
    with patch(plain, seen):
        assert_close(logits_of(plain, pairs), elsewhere, atol=1e-5, rtol=0)


def test_ablation_changes_the_output_and_leaves_no_listener_behind(plain: Speaker, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)
    kinds = {name.rpartition(".")[2] for name in hook_points(plain)}
    for kind in kinds:
        with ablate(plain, f"*.{kind}"):
            assert not torch.allclose(logits_of(plain, pairs), before, atol=1e-3)
        assert nobody_listens(plain)
    assert torch.equal(logits_of(plain, pairs), before)


def test_an_error_inside_leaves_no_listener_behind(plain: Speaker, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)

    def fail(name: str, heard: Tensor) -> Tensor:
        raise RuntimeError(name)

    for interfering in (
        record(plain, "*"),
        ablate(plain, "*"),
        patch(plain, {first(plain): torch.zeros(1)}),
    ):
        with pytest.raises(KeyboardInterrupt), interfering:
            raise KeyboardInterrupt
    with pytest.raises(RuntimeError), hook(plain, "*", fail):
        logits_of(plain, pairs)
    assert nobody_listens(plain)
    assert torch.equal(logits_of(plain, pairs), before)


def test_a_pattern_that_fits_nothing_is_an_error_and_attaches_nothing(plain: Speaker) -> None:
    with pytest.raises(ConfigError, match="no tap fits 'nowhere'"), record(plain, "*", "nowhere"):
        pass
    with (
        pytest.raises(ConfigError),
        patch(plain, {first(plain): torch.zeros(1), "elsewhere": torch.zeros(1)}),
    ):
        pass
    assert nobody_listens(plain)
