"""Recording keeps outputs bit-identical, hooks end with their block, and recorded activations are those that were used."""

from __future__ import annotations

import pytest
import torch
from tiny import Pairs, logits_of
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.attention import AttentionBias, AttentionCore
from heedful.nn.hooks import ablate, hook, hook_points, patch, record
from heedful.nn.model import SequenceModel


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def has_no_hooks(model: nn.Module) -> bool:
    return bool(hook_points(model)) and not any(point.hooks for point in hook_points(model).values())


def first(model: nn.Module) -> str:
    return next(iter(hook_points(model)))


def test_recording_everything_keeps_outputs_bit_identical(plain: SequenceModel, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)
    with record(plain, "*") as recorded:
        during = logits_of(plain, pairs)
    assert torch.equal(during, before)
    assert recorded.keys() == hook_points(plain).keys()
    assert has_no_hooks(plain)


def test_recording_while_stepping_keeps_outputs_bit_identical(plain: SequenceModel, pairs: Pairs) -> None:
    def last_of_two_steps() -> Tensor:
        state = plain.step(pairs.target[:, :3], plain.start(pairs.source, pairs.mask, room=4)).state
        return plain.step(pairs.target[:, 3:4], state).hidden

    before = last_of_two_steps()
    with record(plain, "*"):
        assert torch.equal(last_of_two_steps(), before)


def test_context_vectors_are_the_mean_of_values_with_the_recorded_weights(plain: SequenceModel, pairs: Pairs) -> None:
    cores = {name.removesuffix(".core"): module for name, module in plain.named_modules() if isinstance(module, AttentionCore)}
    if not cores:
        pytest.skip("the model has no attention")
    expected: dict[str, Tensor] = {}
    inputs: dict[str, tuple[Tensor, Tensor, Tensor, AttentionBias]] = {}
    hooks = [
        module.register_forward_pre_hook(lambda _, arguments, name=name: inputs.__setitem__(name, arguments))
        for name, module in cores.items()
    ]
    with record(plain, "*") as recorded:
        logits_of(plain, pairs)
    for handle in hooks:
        handle.remove()
    for name, (_, _, value, attention_bias) in inputs.items():
        weights = recorded[f"{name}.weights"]
        mixed = None if attention_bias.mix is None else attention_bias.mix(weights)
        expected[name] = weights @ value if mixed is None else weights @ value + mixed
        assert_close(recorded[f"{name}.context"], expected[name], atol=1e-5, rtol=0)
        total = weights.sum(-1)  # 0 where all keys of a query are padding
        assert_close(total, total.round())
    assert expected.keys() == cores.keys()


def test_patching_recorded_activations_reproduces_the_output(plain: SequenceModel, pairs: Pairs) -> None:
    with record(plain, "*") as recorded:
        before = logits_of(plain, pairs)
    with patch(plain, recorded):
        assert_close(logits_of(plain, pairs), before, atol=1e-5, rtol=0)
    assert has_no_hooks(plain)


def test_patching_the_last_hook_point_gives_the_output_of_the_recorded_run(plain: SequenceModel, pairs: Pairs) -> None:
    """The output depends on the last hook point alone."""
    other = pairs._replace(target=pairs.target.flip(1))
    last = list(hook_points(plain))[-1]
    with record(plain, last) as recorded:
        expected = logits_of(plain, other)
    assert not torch.allclose(expected, logits_of(plain, pairs))
    with patch(plain, recorded):
        assert_close(logits_of(plain, pairs), expected, atol=1e-5, rtol=0)


def test_ablation_changes_the_output_and_leaves_no_hook_behind(plain: SequenceModel, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)
    kinds = {name.rpartition(".")[2] for name in hook_points(plain)}
    for kind in kinds:
        with ablate(plain, f"*.{kind}"):
            assert not torch.allclose(logits_of(plain, pairs), before, atol=1e-3)
        assert has_no_hooks(plain)
    assert torch.equal(logits_of(plain, pairs), before)


def test_an_error_inside_the_block_leaves_no_hook_behind(plain: SequenceModel, pairs: Pairs) -> None:
    before = logits_of(plain, pairs)

    def fail(name: str, x: Tensor) -> Tensor:
        raise RuntimeError(name)

    for context in (
        record(plain, "*"),
        ablate(plain, "*"),
        patch(plain, {first(plain): torch.zeros(1)}),
    ):
        with pytest.raises(KeyboardInterrupt), context:
            raise KeyboardInterrupt
    with pytest.raises(RuntimeError), hook(plain, "*", fail):
        logits_of(plain, pairs)
    assert has_no_hooks(plain)
    assert torch.equal(logits_of(plain, pairs), before)


def test_a_pattern_without_a_match_is_an_error_and_registers_no_hook(plain: SequenceModel) -> None:
    with pytest.raises(ConfigError, match="no hook point matches 'nowhere'"), record(plain, "*", "nowhere"):
        pass
    with (
        pytest.raises(ConfigError),
        patch(plain, {first(plain): torch.zeros(1), "elsewhere": torch.zeros(1)}),
    ):
        pass
    assert has_no_hooks(plain)
