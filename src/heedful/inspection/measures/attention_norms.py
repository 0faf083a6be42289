"""Norm-based attention analysis, and the entropy of attention weights.

    context_i  = sum_j a_ij v_ij                v_ij: the value vector of key j for query i
    norms_ij   = |W_O v_ij|                     W_O: the rows of the output projection that belong to the head
    weighted_ij = |W_O (a_ij v_ij)| = a_ij norms_ij             "Attention is Not Only a Weight", Kobayashi et al., 2020
    entropy_i  = - sum_j a_ij log2 a_ij         0: all weight on one token; log2 n: uniform over n tokens

A large weight on a value vector of small norm contributes little. With relative position values (Shaw et al.), v_ij is the sum
of both; otherwise it is the same for all i. Where no output projection follows, the norms of the value vectors are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.measures.attention_maps import AttentionMap, selected_attentions
from heedful.nn.attention import AttentionCore, Mix
from heedful.nn.hooks import record
from heedful.nn.model import AttentionLayer, Model, copy_with_shared_weights, inference_context
from heedful.tasks.encoded_example import Forward


class AttentionNorms(NamedTuple):
    """Attention weights with the vectors they are applied to."""

    map: AttentionMap
    vectors: Tensor  # (heads, 1 or query, key, size): value vectors
    context: Tensor  # (heads, query, size): weighted sums
    norms: Tensor  # (heads, 1 or query, key): of the projected value vectors

    @property
    def weighted(self) -> AttentionMap:
        """Norm-weighted attention: weights times norms."""
        return self.map._replace(weights=self.map.weights * self.norms)


def attention_norms(model: Model, forward: Forward, *kinds: str) -> list[AttentionNorms]:
    """Return norms for these kinds of attention (default: all) in the pass over an example."""
    model = copy_with_shared_weights(model)
    selected = selected_attentions(model, kinds)
    if not selected:
        return []
    points = [point for one in selected for point in (one.weights, one.context)]
    with (
        inference_context(model),
        record(model, *points) as recorded,
        capture_inputs(selected) as (inputs, projected),
    ):
        forward(model, 1)
    results = []
    for one in selected:
        if one.weights not in recorded:  # an empty source is not encoded
            continue
        attention = AttentionMap(one.weights, one.kind, one.layer, recorded[one.weights][0])
        contexts = recorded[one.context]
        with inference_context(model):
            vectors = value_vectors(one.core, inputs[one.name], attention.weights)
            found = projected.get(one.name)
            scale = None if found is None else found[0, : contexts.shape[2]].norm() / contexts[0].norm()
            norms = project_by_head(one.out, vectors, scale).norm(dim=-1)
        results.append(AttentionNorms(attention, vectors, contexts[0], norms))
    return results


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy in bits of weights (…, query, key): (…, query)."""
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log2()).sum(-1)


@contextmanager
def capture_inputs(
    attentions: Sequence[AttentionLayer],
) -> Iterator[tuple[dict[str, tuple[Any, ...]], dict[str, Tensor]]]:
    """Collect by name the arguments of attention cores and the inputs of the output projections after them."""
    inputs: dict[str, tuple[Any, ...]] = {}
    projected: dict[str, Tensor] = {}

    def capture_core(name: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs.pop(name, None)
        inputs[name] = arguments  # now the last key: two cores of a layer may share one projection

    def capture_projection(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        projected[next(reversed(inputs))] = arguments[0]

    hooks = [one.core.register_forward_pre_hook(partial(capture_core, one.name)) for one in attentions]
    hooks += [out.register_forward_pre_hook(capture_projection) for out in {one.out for one in attentions} if out is not None]
    try:
        yield inputs, projected
    finally:
        for hook in hooks:
            hook.remove()


def value_vectors(core: nn.Module, arguments: tuple[Any, ...], weights: Tensor) -> Tensor:
    """Arguments of the core, weights (heads, query, key) -> value vectors (heads, 1 or query, key, size)."""
    if not isinstance(core, AttentionCore):  # values (rows, key, size) of one head, or (rows, heads, 1 or query, key, size)
        values: Tensor = arguments[1]
        return values[0] if values.dim() == 5 else values[:1, None]
    value, attention_bias = arguments[2], arguments[3]
    vectors: Tensor = value[0][:, None]  # (heads, 1, key, size)
    return vectors if attention_bias.mix is None else vectors + position_values(attention_bias.mix, weights)


def position_values(mix: Mix, weights: Tensor) -> Tensor:
    """Return the vectors that a position scheme adds to the values: its output for a weight of 1 on each key alone."""
    one_hot = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)  # (key, key)
    outputs = [mix(key.expand(1, *weights.shape)) for key in one_hot]
    vectors = [output[0] for output in outputs if output is not None]
    return torch.stack(vectors, dim=2) if vectors else weights.new_zeros(())  # (heads, query, key, size)


def project_by_head(out: nn.Module | None, vectors: Tensor, scale: Tensor | None) -> Tensor:
    """Apply the output projection to each head separately: (heads, …, size) -> (heads, …, dim).

    scale: factor that some families apply before it; None: no projection follows."""
    if out is None or scale is None:
        return vectors
    zeros = vectors.new_zeros(*vectors.shape[1:-1], len(vectors), vectors.shape[-1])
    outputs = []
    for head, own in enumerate(vectors):
        single = zeros.clone()
        single[..., head, :] = own * scale
        outputs.append(out(single.flatten(-2)) - out(zeros.flatten(-2)))
    return torch.stack(outputs)
