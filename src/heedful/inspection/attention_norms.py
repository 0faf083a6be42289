"""Norm-based attention analysis, and the entropy of attention weights.

    context_i  = sum_j a_ij v_ij                v_ij: the value vector of key j for query i
    norms_ij   = |W_O v_ij|                     W_O: the rows of the output projection that belong to the head
    weighted_ij = |W_O (a_ij v_ij)| = a_ij norms_ij             "Attention is Not Only a Weight", Kobayashi et al., 2020
    entropy_i  = - sum_j a_ij log2 a_ij         0: all weight on one token; log2 n: uniform over n tokens

A large weight on a value vector of small norm contributes little. With relative position values (Shaw et al.), v_ij is the sum
of both; otherwise it is the same for all i. Where no output projection follows, the norms of the value vectors are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import (
    AttentionMap,
    StepModel,
    attentions,
    copy_with_shared_weights,
    core_of,
    inference_context,
    layer_of,
)
from heedful.nn.attention import AttentionCore, Mix
from heedful.nn.hooks import HookPoint, record


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


def attention_norms(model: StepModel, source: Tensor, target_in: Tensor, *kinds: str) -> list[AttentionNorms]:
    """Return norms for these kinds of attention (default: all). source (1, source time), target_in (1, target time)."""
    model = copy_with_shared_weights(model)
    assert isinstance(model, nn.Module), "models are modules"
    selected = {name: kind for name, kind in attentions(model).items() if not kinds or kind.name in kinds}
    if not selected:
        return []
    cores = {name: core_of(model, name) for name in selected}
    points = *selected, *(f"{name.removesuffix('weights')}context" for name in selected)
    with (
        inference_context(model),
        record(model, *points) as recorded,
        capture_inputs(model, list(cores.values())) as (inputs, projected),
    ):
        model.step(target_in, model.start(source, None, room=0))
    results = []
    for name, core in cores.items():
        if name not in recorded:  # an empty source is not encoded
            continue
        attention = AttentionMap(name, selected[name], layer_of(name), recorded[name][0])
        contexts = recorded[f"{name.removesuffix('weights')}context"]
        with inference_context(model):
            vectors = value_vectors(model.get_submodule(core), inputs[core], attention.weights)
            scale = projected[core][0, : contexts.shape[2]].norm() / contexts[0].norm() if core in projected else None
            norms = project_by_head(model, core, vectors, scale).norm(dim=-1)
        results.append(AttentionNorms(attention, vectors, contexts[0], norms))
    return results


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy in bits of weights (…, query, key): (…, query)."""
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log2()).sum(-1)


@contextmanager
def capture_inputs(model: nn.Module, cores: list[str]) -> Iterator[tuple[dict[str, tuple[Any, ...]], dict[str, Tensor]]]:
    """Collect the arguments of the attention cores at these paths and the inputs of the output projections after them."""
    inputs: dict[str, tuple[Any, ...]] = {}
    projected: dict[str, Tensor] = {}

    def capture_core(core: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs.pop(core, None)
        inputs[core] = arguments  # now the last key: two cores of a layer may share one projection

    def capture_projection(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        projected[next(reversed(inputs))] = arguments[0]

    outs = {path for core in cores if (path := projection_path(model, core)) is not None}
    hooks = [model.get_submodule(core).register_forward_pre_hook(partial(capture_core, core)) for core in cores]
    hooks += [model.get_submodule(path).register_forward_pre_hook(capture_projection) for path in outs]
    try:
        yield inputs, projected
    finally:
        for hook in hooks:
            hook.remove()


def value_vectors(core: nn.Module, arguments: tuple[Any, ...], weights: Tensor) -> Tensor:
    """Arguments of the core, weights (heads, query, key) -> value vectors (heads, 1 or query, key, size)."""
    if not isinstance(core, AttentionCore):  # one head: weights (rows, query, key), values (rows, key, size)
        values: Tensor = arguments[1]
        return values[:1, None]
    value, attention_bias = arguments[2], arguments[3]
    vectors: Tensor = value[0][:, None]  # (heads, 1, key, size)
    return vectors if attention_bias.mix is None else vectors + position_values(attention_bias.mix, weights)


def position_values(mix: Mix, weights: Tensor) -> Tensor:
    """Return the vectors that a position scheme adds to the values: its output for a weight of 1 on each key alone."""
    one_hot = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)  # (key, key)
    outputs = [mix(key.expand(1, *weights.shape)) for key in one_hot]
    vectors = [output[0] for output in outputs if output is not None]
    return torch.stack(vectors, dim=2) if vectors else weights.new_zeros(())  # (heads, query, key, size)


def projection_path(model: nn.Module, core: str) -> str | None:
    """Return the path of the output projection after an attention core: its own, or the one shared with self-attention."""
    parent = core.rpartition(".")[0]
    for path in (f"{parent}.out", f"{parent}.self_attention.out"):
        with suppress(AttributeError):
            if not isinstance(model.get_submodule(path), HookPoint):
                return path
    return None


def project_by_head(model: nn.Module, core: str, vectors: Tensor, scale: Tensor | None) -> Tensor:
    """Apply the output projection to each head separately: (heads, …, size) -> (heads, …, dim).

    scale: factor that some families apply before it; None: no projection follows."""
    path = projection_path(model, core)
    if path is None or scale is None:
        return vectors
    out = model.get_submodule(path)
    zeros = vectors.new_zeros(*vectors.shape[1:-1], len(vectors), vectors.shape[-1])
    outputs = []
    for head, own in enumerate(vectors):
        single = zeros.clone()
        single[..., head, :] = own * scale
        outputs.append(out(single.flatten(-2)) - out(zeros.flatten(-2)))
    return torch.stack(outputs)
