"""A model declares its structure completely and in order: its attention, the outputs of its layers, and its embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import Pairs, logits_of
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.hooks import HookPoint, hook_points, patch, record
from heedful.nn.model import ATTENTION_KINDS, AttentionLayer, SequenceModel
from heedful.nn.scores import SourceAttention


def points_of_weights(model: nn.Module) -> set[HookPoint]:
    """The hook points of attention weights, found in the modules that own them."""
    owned = [getattr(module, "weights", None) for module in model.modules()]
    return {point for point in owned if isinstance(point, HookPoint)}


def is_gaussian(attention: AttentionLayer) -> bool:
    """Whether weights are multiplied by a Gaussian after the softmax, so that they sum to less than 1."""
    module = attention.module
    return isinstance(module, SourceAttention) and module.scope is not None and module.scope.gaussian


def in_order_of_model(model: nn.Module, names: list[str]) -> list[str]:
    return [name for name in hook_points(model) if name in names]


def test_every_hook_point_of_attention_weights_is_declared_exactly_once(model: SequenceModel) -> None:
    points, declared = hook_points(model), [attention.weights for attention in model.attentions()]
    assert len(set(declared)) == len(declared)
    assert {points[name] for name in declared} == points_of_weights(model)


def test_attention_is_declared_in_the_order_of_the_model_with_ascending_layers(model: SequenceModel) -> None:
    attentions = model.attentions()
    names = [attention.weights for attention in attentions]
    assert in_order_of_model(model, names) == names
    assert {attention.kind for attention in attentions} <= set(ATTENTION_KINDS)
    for kind in ATTENTION_KINDS:
        layers = [attention.layer for attention in attentions if attention.kind == kind]
        assert layers == sorted(set(layers))


def test_a_declared_attention_names_its_own_modules(model: SequenceModel) -> None:
    """Weights and context vectors are hook points of the module at its path, and core and projections are in the model."""
    points, modules = hook_points(model), set(model.modules())
    for attention in model.attentions():
        owner = model.get_submodule(attention.name)
        assert getattr(owner, "weights", None) is points[attention.weights]
        assert getattr(owner, "context", None) is points[attention.context]
        assert {attention.module, attention.core} <= modules
        assert attention.out is None or attention.out in set(attention.module.modules())


@torch.inference_mode()
def test_recorded_weights_have_the_declared_heads_and_sum_to_one_or_to_zero_where_masked(
    model: SequenceModel, pairs: Pairs
) -> None:
    attentions = model.attentions()
    if not attentions:
        pytest.skip("the model has no attention")
    with record(model, *(name for one in attentions for name in (one.weights, one.context))) as recorded:
        logits_of(model, pairs)
    for attention in attentions:
        weights, context = recorded[attention.weights], recorded[attention.context]
        assert weights.shape[1] == attention.heads
        assert context.shape[:3] == weights.shape[:3]  # rows, heads, queries
        assert weights.min() >= 0
        total = weights.sum(-1)
        assert total.max() > 0
        if is_gaussian(attention):
            assert total.max() <= 1
        else:
            assert_close(total, total.round())
            assert total.max() < 1.5


@torch.inference_mode()
def test_weights_have_the_positions_of_the_declared_queries_and_keys(model: SequenceModel, pairs: Pairs) -> None:
    """Except in block-local and compressed attention, whose queries and keys are blocks and slots."""
    attentions = [one for one in model.attentions() if getattr(model.config, "reach", "full") in ("full", ("full",))]
    if not attentions:
        pytest.skip("the model has no attention to single tokens")
    with record(model, *(one.weights for one in attentions)) as recorded:
        logits_of(model, pairs)
    positions = {"source": 6, "target": 7, "both": 13}
    for one in attentions:
        assert recorded[one.weights].shape == (3, one.heads, positions[one.kind.queries], positions[one.kind.keys])


def test_layer_outputs_are_different_hook_points_in_the_order_of_the_model(model: SequenceModel) -> None:
    names = [output.name for output in model.layer_outputs()]
    assert names and in_order_of_model(model, names) == names
    assert not {hook_points(model)[name] for name in names} & points_of_weights(model)
    for side in ("source", "target", "state"):
        layers = [output.layer for output in model.layer_outputs() if output.side == side]
        assert layers == list(range(len(layers))) and (layers or side == "state")


@torch.inference_mode()
def test_layer_outputs_have_the_positions_of_their_side(model: SequenceModel, pairs: Pairs) -> None:
    outputs = model.layer_outputs()
    with record(model, *(output.name for output in outputs)) as recorded:
        logits_of(model, pairs)
    columns = round(-(-6 * getattr(model.config, "unfold", 1.0) // 1))  # ByteNet has more columns than source tokens
    for output in outputs:
        rows, positions, _ = recorded[output.name].shape
        assert rows == 3
        assert positions == {"source": columns, "target": 7, "state": positions}[output.side]


@torch.inference_mode()
def test_patching_a_layer_output_with_itself_changes_nothing(model: SequenceModel, pairs: Pairs) -> None:
    """With zeros, an output of the decoder changes the logits; not every output of the source is used."""
    outputs = model.layer_outputs()
    with record(model, *(output.name for output in outputs)) as recorded:
        before = logits_of(model, pairs)
    for output in outputs:
        with patch(model, {output.name: recorded[output.name]}):
            assert torch.equal(logits_of(model, pairs), before)
        with patch(model, {output.name: torch.zeros_like(recorded[output.name])}):
            assert output.side == "source" or not torch.equal(logits_of(model, pairs), before)


def test_embeddings_are_the_tables_of_the_tokens_of_each_side(model: SequenceModel, pairs: Pairs) -> None:
    """Each embeds the tokens of its side, and logits depend on the vectors. A source of pixels has no table."""
    tables, calls = model.embeddings(), list[tuple[nn.Module, Tensor, Tensor]]()
    hooks = [
        table.register_forward_hook(lambda module, inputs, vectors: calls.append((module, inputs[0], vectors)))
        for table in set(tables.values())
    ]
    logits = logits_of(model, pairs)
    for hook in hooks:
        hook.remove()
    sides = {"source": pairs.source, "target": pairs.target}
    config: Any = model.config
    if config.image_shape is not None:
        del sides["source"]
    assert tables.keys() == sides.keys() and len(calls) == len(sides)
    for (side, tokens), (module, embedded, vectors) in zip(sides.items(), calls, strict=True):
        assert module is dict(tables)[side] and torch.equal(embedded, tokens)  # type: ignore[index]
        loss = (logits * torch.randn_like(logits)).sum()
        gradients = torch.autograd.grad(loss, [vectors, module.weight], retain_graph=True)
        assert all(bool(gradient.any()) for gradient in gradients)
