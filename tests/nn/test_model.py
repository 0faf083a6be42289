"""The base classes of models: what a family declares, and contexts that leave a model as it was."""

from __future__ import annotations

import pytest
import torch
from tiny import FAMILIES, Pairs, Variant, logits_of, tiny_model
from torch import Tensor, nn

from heedful.nn.attention import NoHeads, self_attention
from heedful.nn.decoder_state import State, Step
from heedful.nn.hooks import HookPoint, hook, hook_points
from heedful.nn.model import (
    ATTENTION_KINDS,
    CROSS,
    DECODER,
    AttentionLayer,
    LayerOutput,
    Model,
    SequenceModel,
    copy_with_shared_weights,
    eval_mode,
    gradient_context,
    inference_context,
)


class Declared(SequenceModel):
    """A stack whose modules have arbitrary names, and whose second layer has no heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.ModuleList([self_attention(8, heads, 4, dropout=0.0) for heads in (2, 0, 3)])
        self.tail = nn.ModuleDict({"end": HookPoint()})

    def attentions(self) -> list[AttentionLayer]:
        return [one for at, module in enumerate(self.stack) for one in self.attention(CROSS, 10 + at, module)]

    def layer_outputs(self) -> list[LayerOutput]:
        end = self.tail["end"]
        assert isinstance(end, HookPoint)
        return [self.layer_output("target", 7, end)]

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        return State({"source": source}, None)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        return Step(nn.functional.one_hot(tokens, 5).float(), state, {})

    def project(self, hidden: Tensor) -> Tensor:
        return 2 * hidden


def test_kind_and_layer_are_as_declared_and_names_are_paths_of_the_modules() -> None:
    """They are not parsed from names; attention without heads is not listed."""
    model = Declared()
    first, third = model.attentions()
    assert [(one.kind, one.layer, one.heads, one.name) for one in (first, third)] == [
        (CROSS, 10, 2, "stack.0"),
        (CROSS, 12, 3, "stack.2"),
    ]
    assert first.module is model.stack[0] and isinstance(model.stack[1], NoHeads)
    assert first.core is model.stack[0].core and first.out is model.stack[0].out
    points = hook_points(model)
    assert points[first.weights] is model.stack[0].weights and points[first.context] is model.stack[0].context
    assert model.layer_outputs() == [LayerOutput("target", 7, "tail.end")]


def test_kinds_of_attention_have_different_names() -> None:
    assert len({kind.name for kind in ATTENTION_KINDS}) == len(ATTENTION_KINDS) and DECODER in ATTENTION_KINDS


def test_a_model_declares_neither_attention_nor_layers_nor_embeddings_by_default() -> None:
    model = Model()
    assert (model.attentions(), model.layer_outputs(), model.embeddings()) == ([], [], {})
    assert model.base_model is model


def test_a_forced_pass_is_one_step_over_the_whole_target_with_or_without_a_source() -> None:
    model, target = Declared(), torch.tensor([[1, 2, 3]])
    source = torch.tensor([[4, 4]])
    assert model.forced(source, None, target).state.memory["source"] is source
    assert model.forced(None, None, target).state.memory["source"].shape == (1, 0)
    assert torch.equal(model.forced_logits(source, None, target), 2 * nn.functional.one_hot(target, 5).float())


def test_every_module_keeps_its_training_mode() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval(), nn.Dropout()).eval()
    model[2].train()
    with inference_context(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model] == [False, False, True] and not model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_with_shared_weights_returns_the_same_logits_and_calls_the_same_hooks(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    assert isinstance(model, nn.Module)
    with inference_context(model):
        before = logits_of(model, pairs)
        assert torch.equal(logits_of(copy_with_shared_weights(model), pairs), before)
        with hook(model, "*", lambda name, x: 2 * x):
            changed = logits_of(model, pairs)
            assert torch.equal(logits_of(copy_with_shared_weights(model), pairs), changed)
    assert not torch.equal(changed, before)
    copied = copy_with_shared_weights(model)
    assert all(shared is original for shared, original in zip(copied.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(("context", "gradients"), [(eval_mode, True), (inference_context, False), (gradient_context, True)])
def test_every_context_disables_dropout_and_only_inference_disables_gradients(context: object, gradients: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    with context(model):  # type: ignore[operator]
        assert not model[1].training and model(torch.ones(1, 2)).requires_grad == gradients
    assert model[1].training


def test_gradients_can_be_computed_inside_inference_mode() -> None:
    model = nn.Linear(2, 2)
    with torch.inference_mode(), gradient_context(model):
        (gradient,) = torch.autograd.grad(model(torch.ones(1, 2)).sum(), [model.bias])
    assert torch.equal(gradient, torch.ones(2))
