"""Word alignment: sentence pairs -> token ids -> teacher-forced passes -> attention between words -> links.

    weights = collect_head_weights(models, valid.pairs)                         sentences with gold alignments
    aligner, error = choose_aligner(weights, valid.alignments)
    for links in align(models, pairs, aligner): print(as_pharaoh(links))        "0-0 1-2 2-1"

Pairs of similar length are batched; results keep the order of the input. A pair with an empty side, or one too long for the
model, has no links. Words are those of text.split(). Punctuation tokens are ignored in words that have other tokens: attention
to a question mark is not attention to the word before it. Heads of a model for the reverse direction can be combined with
those of the forward model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.gold import SentencePair
from heedful.data.input_lines import CHUNK_LINES
from heedful.evaluation.word_alignment import Alignment, Link
from heedful.inspection.measures.alignment_links import LinkRule, choose_heads_and_rule, label_maps, links, select_heads
from heedful.inspection.measures.merge_words import merge_pieces
from heedful.nn.source_attention import no_source_attention, source_attentions, source_weights
from heedful.tasks.batches import collate, pad
from heedful.tasks.system import System, batches_of

Moment = Literal[
    "predict", "consume"
]  # attention from the step that predicts the target word, or from the step that consumes it
MOMENTS: tuple[Moment, ...] = ("predict", "consume")
BATCH = 2**13  # tokens per pass: the weights of all layers must fit into memory


class Models(NamedTuple):
    """The models whose attention is used."""

    forward: System
    back: System | None = None  # translates from the target language into the source language


class AlignmentHead(NamedTuple):
    """A head with attention to the source; layer and number count from 0."""

    layer: int
    number: int
    back: bool = False  # whether it belongs to the model for the reverse direction

    def __str__(self) -> str:
        return f"{'back.' * self.back}{self.layer}.{self.number}"


class Aligner(NamedTuple):
    """How links are computed from attention weights."""

    heads: tuple[AlignmentHead, ...]
    moment: Moment = "predict"
    rule: LinkRule = LinkRule()


class Pass(NamedTuple):
    """A teacher-forced pass over a batch of pairs."""

    indices: list[int]  # of the pairs
    weights: dict[int, Tensor]  # by layer (rows, heads, target time, source time)
    source_words: Tensor  # (rows, source time): word index of each piece, -1: none
    target_words: dict[Moment, Tensor]  # (rows, target time), the same

    def word_weights(self, heads: Sequence[AlignmentHead], moment: Moment) -> Tensor:
        """(rows, heads, target words, source words)."""
        weights = torch.stack([self.weights[head.layer][:, head.number] for head in heads], dim=1).float()
        words = self.source_words.to(weights.device), self.target_words[moment].to(weights.device)
        return merge_pieces(weights, *words).cpu()


class HeadWeights(NamedTuple):
    """Attention weights of every head between the words of each pair."""

    heads: list[AlignmentHead]
    maps: dict[Moment, list[Tensor]]  # for each pair (heads, target words, source words); zeros for pairs without a pass

    def links(self, aligner: Aligner) -> list[set[Link]]:
        """Return the links of each pair."""
        selected = [self.heads.index(head) for head in aligner.heads]
        return [links(weights[selected].mean(0), aligner.rule) for weights in self.maps[aligner.moment]]


def heads_of(models: Models) -> list[AlignmentHead]:
    """Return every head with attention to the source, layer by layer."""
    heads = []
    for back, system in enumerate(models):
        if system is None:
            continue
        attentions = source_attentions(system.models[0])
        if not attentions:
            raise no_source_attention("the alignment of words")
        heads += [AlignmentHead(layer, head, bool(back)) for layer, one in attentions.items() for head in range(one.heads)]
    return heads


def forced_passes(system: System, pairs: Sequence[SentencePair], heads: Sequence[AlignmentHead]) -> Iterator[Pass]:
    """Yield teacher-forced passes over all pairs that fit the model, the longest first."""
    source, target = system.source_tokenizer, system.target_tokenizer
    ids = source.encode_many([pair.source for pair in pairs]), target.encode_many([pair.target for pair in pairs])
    longest = [max(len(source_ids), len(target_ids)) for source_ids, target_ids in zip(*ids, strict=True)]
    fits = [i for i, length in enumerate(longest) if length <= system.max_length and ids[0][i] and ids[1][i]]
    layers = list(dict.fromkeys(head.layer for head in heads))
    order = sorted(fits, key=lambda i: longest[i], reverse=True)
    for batch_indices in batches_of(order, lambda i: longest[i] + 1, min(system.batch_tokens, BATCH)):
        source_ids, target_ids = ([side[i] for i in batch_indices] for side in ids)
        batch = collate(source_ids, target_ids, source.specials, target.specials).to(system.device)
        weights = source_weights(system.models[0], batch.source, batch.source_mask, batch.target_in, layers)
        if not all(bool(one.isfinite().all()) for one in weights.values()):
            raise system.nonfinite_error(f"pair {batch_indices[0] + 1} or one of similar length")
        own = [target.unpunctuated_word_of(row) for row in target_ids]
        words: dict[Moment, Tensor] = {
            "predict": pad([[*row, -1] for row in own], -1),  # the last step predicts the end token
            "consume": pad([[-1, *row] for row in own], -1),  # the first step consumes the start token
        }
        yield Pass(batch_indices, weights, pad([[*source.unpunctuated_word_of(row), -1] for row in source_ids], -1), words)


def maps_of(
    models: Models, pairs: Sequence[SentencePair], heads: Sequence[AlignmentHead], moments: Sequence[Moment]
) -> list[list[Tensor]]:
    """Return for each moment and pair (heads, target words, source words), in the order of the heads."""
    shapes = [(len(heads), len(pair.target.split()), len(pair.source.split())) for pair in pairs]
    results = [[torch.zeros(shape) for shape in shapes] for _ in moments]
    for back, system in enumerate(models):
        own = [index for index, head in enumerate(heads) if head.back == back]
        if system is None or not own:
            continue
        direction = [pair.swapped for pair in pairs] if back else pairs
        for batch in forced_passes(system, direction, [heads[index] for index in own]):
            for maps, moment in zip(results, moments, strict=True):
                merged = batch.word_weights([heads[index] for index in own], moment)  # (rows, heads, words, words)
                for index, row in zip(batch.indices, merged.transpose(-2, -1) if back else merged, strict=True):
                    maps[index][own] = row[:, : shapes[index][1], : shapes[index][2]]
    return results


def collect_head_weights(models: Models, pairs: Sequence[SentencePair]) -> HeadWeights:
    """Return the attention weights of all heads between words."""
    heads = heads_of(models)
    return HeadWeights(heads, dict(zip(MOMENTS, maps_of(models, pairs, heads, MOMENTS), strict=True)))


def align(models: Models, pairs: Iterable[SentencePair], aligner: Aligner) -> Iterator[set[Link]]:
    """Yield the links of each pair, in the order of the pairs."""
    remaining = iter(pairs)
    while chunk := list(islice(remaining, CHUNK_LINES)):
        (maps,) = maps_of(models, chunk, aligner.heads, [aligner.moment])
        yield from (links(weights.mean(0), aligner.rule) for weights in maps)


def choose_aligner(weights: HeadWeights, gold: Sequence[Alignment]) -> tuple[Aligner, float]:
    """Return the heads, moment and rule with the lowest error rate on these pairs, and that rate.

    The moment is chosen with the default rule."""
    labeled = {moment: label_maps(weights.maps[moment], gold) for moment in MOMENTS}
    moment = min(MOMENTS, key=lambda moment: select_heads(labeled[moment], LinkRule())[1])
    heads, rule, error = choose_heads_and_rule(labeled[moment])
    return Aligner(tuple(weights.heads[i] for i in heads), moment, rule), error


def as_pharaoh(links: Iterable[Link]) -> str:
    """Return links in the Pharaoh format, sorted: 0-0 1-2."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
