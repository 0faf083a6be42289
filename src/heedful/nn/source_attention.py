"""Attention weights on the source, in one teacher-forced pass, and the coverage of the source by them.

    weights[layer] (rows, heads, target time, source time)

Row t holds the weights of the decoder step that *predicts* target token t. Where source and target form one sequence, they are
the columns of the source. Coverage penalty ("Google's Neural Machine Translation System", Wu et al., 2016):

    cp = sum_i log min(sum_j p_ij, 1)        p_ij: attention from the step that predicts target token j to source token i

It is 0 if every source token receives a total attention of at least 1, and falls with every token that receives less. p_ij is
the mean over all heads and layers.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.nn.hooks import record
from heedful.nn.model import CROSS, WITHIN, AttentionLayer, SequenceModel, inference_context

MIN_COVERAGE = 1e-4  # floor of the total attention, so that one uncovered token does not cost infinity


def source_attentions(model: SequenceModel) -> dict[int, AttentionLayer]:
    """The attention to the source by layer; empty: the model has none. Cross-attention, else that over both sequences."""
    attentions = model.attentions()
    cross = [attention for attention in attentions if attention.kind == CROSS]
    return {one.layer: one for one in cross or [one for one in attentions if one.kind == WITHIN]}


def no_source_attention(purpose: str) -> ConfigError:
    """The error for a model that does not attend to its source."""
    return ConfigError(
        f"{purpose} needs a model that attends to its source, and this one does not",
        hint="use a family with cross-attention, such as transformer or bahdanau, or gpt",
    )


def source_weights(
    model: SequenceModel, source: Tensor, source_mask: Tensor | None, target_in: Tensor, layers: Iterable[int] | None = None
) -> dict[int, Tensor]:
    """source and source_mask (rows, source time), or the pixels of images; target_in (rows, target time) -> for each of these
    layers (default: all) (rows, heads, target time, source time); the source time of an image is its number of patches."""
    attentions = source_attentions(model)
    if not attentions:
        raise no_source_attention("the alignment of words")
    names = {layer: attentions[layer].weights for layer in (attentions if layers is None else layers)}
    with inference_context(model), record(model, *names.values()) as recorded:
        model.forced(source, source_mask, target_in)
    return {layer: source_columns(attentions[layer], recorded[name], source) for layer, name in names.items()}


def source_columns(attention: AttentionLayer, weights: Tensor, source: Tensor) -> Tensor:
    """weights (rows, heads, target time, key): without the columns of the target, where it follows the source in one sequence.
    Cross-attention has columns of the source only, of an image those of its patches."""
    return weights[..., : source.shape[1]] if attention.kind.keys == "both" else weights


def mean_source_weights(model: SequenceModel, source: Tensor, target_in: Tensor, layer: int | None = None) -> Tensor:
    """Weights of one pair averaged over the heads of one layer, or of all layers: source (1, source time), target_in
    (1, target time) -> (target time, source time). The last row is of the end token."""
    weights = source_weights(model, source, None, target_in, None if layer is None else [layer])
    return torch.stack([heads[0].mean(0) for heads in weights.values()]).mean(0)


def coverage(weights: Tensor, token_mask: Tensor) -> Tensor:
    """weights (rows, target time, source time), token_mask (rows, target time): True for tokens, False for padding
    -> cp (rows,)."""
    totals = (weights * token_mask[..., None]).sum(1)  # (rows, source time)
    return totals.clamp(MIN_COVERAGE, 1.0).log().sum(-1)


def coverage_of(model: SequenceModel, source: Tensor, target_in: Tensor, lengths: Tensor) -> Tensor:
    """The coverage of several translations of one source: source (time,) with the end token, which need not be covered;
    target_in (rows, target time), lengths (rows,): tokens of each row without padding -> cp (rows,)."""
    layers = source_weights(model, source.expand(len(target_in), -1), None, target_in).values()
    weights = torch.stack([heads.mean(1) for heads in layers]).mean(0)  # (rows, target time, source time)
    token_mask = torch.arange(target_in.shape[1], device=lengths.device) < lengths[:, None]
    return coverage(weights[..., :-1], token_mask)
