"""Beside the weights: how much each token really gave, and how spread a look is.

    found_i   = sum_j a_ij v_ij                 v_ij: the value of token j, as token i is given it
    lengths_ij = |W_O v_ij|                     of a head: the rows of W_O that belong to it
    given_ij  = |W_O (a_ij v_ij)| = a_ij lengths_ij             "Attention is Not Only a Weight", Kobayashi et al., 2020
    entropy_i = - sum_j a_ij log2 a_ij          0: at one token alone; log2 n: at n tokens alike

A large weight on a short vector gives little: the weight is what a token was looked at with, the norm what came of it. Where
positions are mixed into the values (Shaw et al.), v_ij is the sum of both; elsewhere it is the same for all i. Where no
projection follows, the vectors themselves are measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import AttentionMap, Says, attentions, core_of, forced, layer_of, with_shared_weights
from heedful.nn.attention import AttentionCore, Mix
from heedful.nn.hooks import HookPoint, record


class AttentionNorms(NamedTuple):
    """A map, and what stood behind it."""

    map: AttentionMap
    vectors: Tensor  # (heads, 1 or query, key, size): what was weighed
    found: Tensor  # (heads, query, size): the sum
    lengths: Tensor  # (heads, 1 or query, key): of the vectors, once projected

    @property
    def given(self) -> AttentionMap:
        return self.map._replace(weights=self.map.weights * self.lengths)


def attention_norms(model: Says, source: Tensor, target_in: Tensor, *kinds: str) -> list[AttentionNorms]:
    """source (1, source time), target_in (1, target time); of these kinds, or of all."""
    model = with_shared_weights(model)
    assert isinstance(model, nn.Module), "models are modules"
    wanted = {name: kind for name, kind in attentions(model).items() if not kinds or kind.name in kinds}
    if not wanted:
        return []
    places = {name: core_of(model, name) for name in wanted}
    listened = *wanted, *(f"{name.removesuffix('weights')}context" for name in wanted)
    with forced(model), record(model, *listened) as seen, arriving(model, list(places.values())) as (given, onward):
        model.step(target_in, model.start(source, None, room=0))
    found = []
    for name, place in places.items():
        if name not in seen:  # an empty source is not read
            continue
        one = AttentionMap(name, wanted[name], layer_of(name), seen[name][0])
        sums = seen[f"{name.removesuffix('weights')}context"]
        with forced(model):
            vectors = vectors_of(model.get_submodule(place), given[place], one.weights)
            scale = onward[place][0, : sums.shape[2]].norm() / sums[0].norm() if place in onward else None
            lengths = projected(model, place, vectors, scale).norm(dim=-1)
        found.append(AttentionNorms(one, vectors, sums[0], lengths))
    return found


def entropy(weights: Tensor) -> Tensor:
    """(…, query, key) -> (…, query), in bits."""
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log2()).sum(-1)


@contextmanager
def arriving(model: nn.Module, places: list[str]) -> Iterator[tuple[dict[str, tuple[Any, ...]], dict[str, Tensor]]]:
    """Collect what the looks at these places are given, and what is then given to the projection after each of them."""
    given: dict[str, tuple[Any, ...]] = {}
    onward: dict[str, Tensor] = {}

    def looks(place: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        given.pop(place, None)
        given[place] = arguments  # stands last now: a projection is shared where one layer looks in two ways

    def projects(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        onward[next(reversed(given))] = arguments[0]

    outs = {path for place in places if (path := projection(model, place)) is not None}
    hooks = [model.get_submodule(place).register_forward_pre_hook(partial(looks, place)) for place in places]
    hooks += [model.get_submodule(path).register_forward_pre_hook(projects) for path in outs]
    try:
        yield given, onward
    finally:
        for hook in hooks:
            hook.remove()


def vectors_of(look: nn.Module, arguments: tuple[Any, ...], weights: Tensor) -> Tensor:
    """What a look was given, and the weights (heads, query, key) that it put on it -> (heads, 1 or query, key, size)."""
    if not isinstance(
        look, AttentionCore
    ):  # a look at the source by one head: weights (rows, query, key), values (rows, key, size)
        values: Tensor = arguments[1]
        return values[:1, None]
    value, attention_bias = arguments[2], arguments[3]
    vectors: Tensor = value[0][:, None]  # (heads, 1, key, size)
    return vectors if attention_bias.mix is None else vectors + mixed_in(attention_bias.mix, weights)


def mixed_in(mix: Mix, weights: Tensor) -> Tensor:
    """What a position scheme adds to the value of each key: what it makes of a look at that key alone."""
    alone = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)  # (key, key)
    added = [mix(one.expand(1, *weights.shape)) for one in alone]
    known = [one[0] for one in added if one is not None]
    return torch.stack(known, dim=2) if known else weights.new_zeros(())  # (heads, query, key, size)


def projection(model: nn.Module, place: str) -> str | None:
    """Where what a look found is projected, if it is: beside the look, or with the layer's other look."""
    home = place.rpartition(".")[0]
    for path in (f"{home}.out", f"{home}.self_attention.out"):
        with suppress(AttributeError):
            if not isinstance(model.get_submodule(path), HookPoint):
                return path
    return None


def projected(model: nn.Module, place: str, vectors: Tensor, scale: Tensor | None) -> Tensor:
    """The linear map that ends a look, each head by itself: (heads, …, size) -> (heads, …, dim).

    scale: what some families multiply with before it; None: nothing follows."""
    path = projection(model, place)
    if path is None or scale is None:
        return vectors
    out = model.get_submodule(path)
    nothing = vectors.new_zeros(*vectors.shape[1:-1], len(vectors), vectors.shape[-1])
    shares = []
    for head, own in enumerate(vectors):
        alone = nothing.clone()
        alone[..., head, :] = own * scale
        shares.append(out(alone.flatten(-2)) - out(nothing.flatten(-2)))
    return torch.stack(shares)
