"""Aligning words: pairs of sentences -> encode -> one forced pass for many -> attention between words -> links.

    aligner, error = choose_aligner(watch(models, valid.pairs), valid.alignments)      on sentences with gold alignments
    for links in align(models, pairs, aligner): print(as_pharaoh(links))               "0-0 1-2 2-1"

Pairs of like length share a pass and come out in the order they came in; a pair with a side that is empty or too long for the
model has no links. Words are what text.split() gives; a sign counts as part of its word only where that is all there is of it:
who says "Does" looks at a question mark, and not at the word before it. A second model that translates back brings heads that
see the same pairs from the other side; a set of heads may be of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.gold import Words
from heedful.evaluation.word_alignment import Alignment, Link
from heedful.inspection.alignment import cross_weights, merge_pieces
from heedful.inspection.alignment_links import LinkRule, choose, grow, label_maps, links
from heedful.tasks.batches import collate, pad
from heedful.tasks.translate import CHUNK_LINES, System, batches_of

Moment = Literal["said", "fed"]  # which look of a target word counts: the one that led to it, or its own
MOMENTS: tuple[Moment, ...] = ("said", "fed")
BATCH = 2**13  # tokens in a pass: the maps of all layers must fit into memory


class Models(NamedTuple):
    """Who aligns."""

    there: System
    back: System | None = None  # translates from the target's language into the source's


class AlignmentHead(NamedTuple):
    """One that looks at what its model reads; counted from 0."""

    layer: int
    number: int
    back: bool = False  # of the model that translates back

    def __str__(self) -> str:
        return f"{'back.' * self.back}{self.layer}.{self.number}"


class Aligner(NamedTuple):
    """How links are read off attention."""

    heads: tuple[AlignmentHead, ...]
    moment: Moment = "said"
    linking: LinkRule = LinkRule()


class Pass(NamedTuple):
    """One forced pass over some of the pairs."""

    places: list[int]  # where these pairs stand
    weights: dict[int, Tensor]  # by layer (rows, heads, target time, source time)
    source_words: Tensor  # (rows, source time): the word that each piece belongs to, -1: none
    target_words: dict[Moment, Tensor]  # (rows, target time), likewise

    def between_words(self, heads: Sequence[AlignmentHead], moment: Moment) -> Tensor:
        """(rows, heads, target words, source words)."""
        weights = torch.stack([self.weights[head.layer][:, head.number] for head in heads], dim=1).float()
        words = self.source_words.to(weights.device), self.target_words[moment].to(weights.device)
        return merge_pieces(weights, *words).cpu()


class HeadWeights(NamedTuple):
    """How every head aligned the words of each pair."""

    heads: list[AlignmentHead]
    maps: dict[Moment, list[Tensor]]  # for each pair (heads, target words, source words); zeros where there was no pass

    def links(self, aligner: Aligner) -> list[set[Link]]:
        chosen = [self.heads.index(head) for head in aligner.heads]
        return [links(one[chosen].mean(0), aligner.linking) for one in self.maps[aligner.moment]]


def heads_of(models: Models) -> list[AlignmentHead]:
    """Every head that looks at what is read, layer by layer."""
    found = []
    for back, system in enumerate(models):
        if system is None:
            continue
        end = torch.tensor([[system.source_tokenizer.specials.end]], device=system.device)
        start = torch.tensor([[system.target_tokenizer.specials.start]], device=system.device)
        weights = cross_weights(system.models[0], end, None, start)
        found += [AlignmentHead(layer, number, bool(back)) for layer, one in weights.items() for number in range(one.shape[1])]
    return found


def passes(system: System, pairs: Sequence[Words], heads: Sequence[AlignmentHead]) -> Iterator[Pass]:
    """Forced passes over all pairs that the model can take, the longest first."""
    source, target = system.source_tokenizer, system.target_tokenizer
    ids = source.encode_many([pair.source for pair in pairs]), target.encode_many([pair.target for pair in pairs])
    longest = [max(len(read), len(said)) for read, said in zip(*ids, strict=True)]
    fits = [i for i, length in enumerate(longest) if length <= system.max_length and ids[0][i] and ids[1][i]]
    layers = list(dict.fromkeys(head.layer for head in heads))
    order = sorted(fits, key=lambda i: longest[i], reverse=True)
    for chosen in batches_of(order, lambda i: longest[i] + 1, min(system.batch_tokens, BATCH)):
        read, said = ([side[i] for i in chosen] for side in ids)
        batch = collate(read, said, source.specials, target.specials).to(system.device)
        weights = cross_weights(system.models[0], batch.source, batch.source_mask, batch.target_in, layers)
        own = [target.spoken_word_of(row) for row in said]
        words: dict[Moment, Tensor] = {
            "said": pad([[*row, -1] for row in own], -1),  # the last look says the end
            "fed": pad([[-1, *row] for row in own], -1),  # the first is of the start
        }
        yield Pass(chosen, weights, pad([[*source.spoken_word_of(row), -1] for row in read], -1), words)


def maps_of(
    models: Models, pairs: Sequence[Words], heads: Sequence[AlignmentHead], moments: Sequence[Moment]
) -> list[list[Tensor]]:
    """For each moment and pair (heads, target words, source words), in the order of the heads."""
    shapes = [(len(heads), len(pair.target.split()), len(pair.source.split())) for pair in pairs]
    found = [[torch.zeros(shape) for shape in shapes] for _ in moments]
    for back, system in enumerate(models):
        own = [place for place, head in enumerate(heads) if head.back == back]
        if system is None or not own:
            continue
        turned = [pair.swapped for pair in pairs] if back else pairs
        for one in passes(system, turned, [heads[place] for place in own]):
            for maps, moment in zip(found, moments, strict=True):
                merged = one.between_words([heads[place] for place in own], moment)  # (rows, heads, words, words)
                for place, row in zip(one.places, merged.transpose(-2, -1) if back else merged, strict=True):
                    maps[place][own] = row[:, : shapes[place][1], : shapes[place][2]]
    return found


def collect_head_weights(models: Models, pairs: Sequence[Words]) -> HeadWeights:
    heads = heads_of(models)
    return HeadWeights(heads, dict(zip(MOMENTS, maps_of(models, pairs, heads, MOMENTS), strict=True)))


def align(models: Models, pairs: Iterable[Words], aligner: Aligner) -> Iterator[set[Link]]:
    """The links of each pair, in the order of the pairs."""
    waiting = iter(pairs)
    while chunk := list(islice(waiting, CHUNK_LINES)):
        (maps,) = maps_of(models, chunk, aligner.heads, [aligner.moment])
        yield from (links(one.mean(0), aligner.linking) for one in maps)


def choose_aligner(watched: HeadWeights, gold: Sequence[Alignment]) -> tuple[Aligner, float]:
    """The heads, the moment and the thresholds with the lowest error rate on these pairs, and that rate.

    The moment is the one at which the usual rule does better."""
    judges = {moment: label_maps(watched.maps[moment], gold) for moment in MOMENTS}
    moment = min(MOMENTS, key=lambda one: grow(judges[one], LinkRule())[1])
    heads, linking, error = choose(judges[moment])
    return Aligner(tuple(watched.heads[i] for i in heads), moment, linking), error


def as_pharaoh(links: Iterable[Link]) -> str:
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
