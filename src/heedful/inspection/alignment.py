"""Soft alignment: cross-attention weights between target words and source words.

    weights[layer] (rows, heads, target time, source time)         one teacher-forced pass over a batch
    merged  = target^T weights source / pieces of the target word   subword pieces become words

Row t holds the weights of the decoder step that *predicts* target token t; row t + 1 those of the step that *consumes* it,
which in some layers align better (Chen et al., 2020). `alignment_links.py` turns weights into links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import StepModel, attentions, inference_context, layer_of
from heedful.nn.hooks import record

ATTENDING_FAMILIES = (
    "use a family that does: transformer, bahdanau, luong, gnmt, deep_att, convs2s, mixed with bridge 'attention', gpt"
)


def attends_to_source(model: nn.Module) -> bool:
    """Return whether the decoder attends to the source."""
    return any(kind.name in ("cross", "within") for kind in attentions(model).values())


def source_attention_points(model: nn.Module) -> dict[int, str]:
    """Return by layer the names of the hook points with the weights of the attention to the source. Where source and target
    form one sequence, those of the self-attention over it."""
    kinds = attentions(model)
    names = [name for name, kind in kinds.items() if kind.name == "cross"]
    names = names or [name for name, kind in kinds.items() if kind.name == "within"]
    if not names:
        raise ConfigError(
            "this model does not attend to its source, so words cannot be aligned",
            hint=ATTENDING_FAMILIES,
        )
    return {layer_of(name): name for name in names}


def cross_weights(
    model: StepModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, layers: Iterable[int] | None = None
) -> dict[int, Tensor]:
    """source and source_mask (rows, source time), target_in (rows, target time) -> for each of these layers (default: all)
    (rows, heads, target time, source time)."""
    assert isinstance(model, nn.Module), "models are modules"
    names = source_attention_points(model)
    selected = {layer: names[layer] for layer in (names if layers is None else layers)}
    with inference_context(model), record(model, *selected.values()) as recorded:
        model.step(target_in, model.start(source, source_mask, room=0))
    return {layer: recorded[name][..., : source.shape[1]] for layer, name in selected.items()}


def cross_maps(model: StepModel, source: Tensor, target_in: Tensor) -> list[Tensor]:
    """source (1, source time), target_in (1, target time) -> for each layer (heads, target time, source time).

    Where source and target form one sequence: the columns of the source."""
    return [weights[0] for weights in cross_weights(model, source, None, target_in).values()]


def mean_cross_attention(model: StepModel, pair: tuple[Tensor, Tensor], layer: int | None = None) -> Tensor:
    """Return the cross-attention weights averaged over the heads of one layer, or of all layers: (target time, source time).

    Row t belongs to the step that predicts target token t; the last row to the end token."""
    maps = cross_maps(model, *pair)
    selected = maps if layer is None else [maps[layer]]
    return torch.stack([weights.mean(0) for weights in selected]).mean(0)


def merge_into_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Merge pieces into words: sum over the pieces of a source word, average over those of a target word.

    weights (target pieces, source pieces); the word index of each piece -> (target words, source words)."""
    return merge_pieces(weights[None, None], torch.tensor([source_words]), torch.tensor([target_words]))[0, 0]


def merge_pieces(weights: Tensor, source_words: Tensor, target_words: Tensor) -> Tensor:
    """Batched `merge_into_words`: weights (rows, heads, target pieces, source pieces), source_words (rows, source
    pieces), target_words (rows, target pieces), -1: special token or padding -> (rows, heads, target words, source words)."""
    source = word_membership(source_words).to(weights)[:, None]  # (rows, 1, source pieces, source words)
    target = word_membership(target_words).to(weights)[:, None]  # (rows, 1, target pieces, target words)
    pieces = target.sum(-2)[..., None].clamp(min=1)  # (rows, 1, target words, 1)
    return target.transpose(-2, -1) @ weights @ source / pieces


def word_membership(words: Tensor) -> Tensor:
    """(rows, pieces) -> (rows, pieces, words): 1 where the piece belongs to the word."""
    return nn.functional.one_hot(words + 1)[..., 1:]
