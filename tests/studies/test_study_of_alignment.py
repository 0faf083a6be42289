"""Aligning whole files: many pairs at once as each alone, in order, and choices that carry over from one set to another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from workshop import WORDS, heed, write_recipe

from heedful.build import load_translator
from heedful.data.gold import Gold, SentencePair
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.alignment import cross_maps
from heedful.inspection.alignment_links import LinkRule
from heedful.search import SearchConfig
from heedful.studies.alignment import (
    MOMENTS,
    Aligner,
    Models,
    align,
    as_pharaoh,
    choose_aligner,
    collect_head_weights,
    heads_of,
)
from heedful.studies.alignment_report import Judge, by_layer
from heedful.studies.trace import look_at, word_maps

PAIRS = [
    SentencePair(" ".join(WORDS[i : i + n]), " ".join(reversed(WORDS[i : i + n]))) for i, n in ((0, 3), (4, 8), (2, 1), (9, 5))
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder: Path = tmp_path_factory.mktemp("aligning")
    recipe = write_recipe(folder)
    with (folder / "pairs.tsv").open("a") as file:
        file.write("w1 w2?\tw2? w1\n")  # a sign is known
    assert heed("train", recipe, "data.max_length=10", "--run", folder / "run") == 0
    return Models(load_translator(folder / "run").system)


def reversed_gold(pairs: list[SentencePair]) -> Gold:
    """The corpus reverses: word i becomes word n - 1 - i."""
    lengths = [len(pair.source.split()) for pair in pairs]
    sure = [frozenset((i, n - 1 - i) for i in range(n)) for n in lengths]
    return Gold(pairs, [Alignment(links, links) for links in sure])


@pytest.mark.parametrize("moment", MOMENTS)
def test_many_pairs_give_the_links_of_each_alone_and_in_order(models: Models, moment: str) -> None:
    aligner = Aligner(tuple(heads_of(models)), moment, LinkRule(0.9, 0.2))  # type: ignore[arg-type]
    together = list(align(models, PAIRS, aligner))
    assert together == [next(align(models, [pair], aligner)) for pair in PAIRS]
    assert together == collect_head_weights(models, PAIRS).links(aligner)
    assert all(together) and len({as_pharaoh(links) for links in together}) > 1


def test_what_is_watched_is_the_attention_of_a_single_trace(models: Models) -> None:
    seen = collect_head_weights(models, PAIRS)
    for pair, one in zip(PAIRS, seen.maps["said"], strict=True):
        trace = look_at(models.there, pair.source, SearchConfig(), pair.target)
        torch.testing.assert_close(one, torch.cat(list(word_maps(trace).values())), atol=1e-5, rtol=1e-4)


def test_when_fed_a_word_looks_as_the_next_word_is_said(models: Models) -> None:
    seen = collect_head_weights(models, PAIRS)
    for said, fed in zip(seen.maps["said"], seen.maps["fed"], strict=True):
        torch.testing.assert_close(fed[:, :-1], said[:, 1:], atol=1e-5, rtol=1e-4)  # one piece a word here


def test_a_look_at_a_sign_is_no_look_at_the_word_it_stands_at(models: Models) -> None:
    tokenizer = models.there.source_tokenizer
    source, target = tokenizer.encode("w1 w2?"), tokenizer.encode("w2? w1")
    specials = tokenizer.specials
    pieces = torch.tensor([[*source, specials.end]]), torch.tensor([[specials.start, *target]])
    weights = torch.cat(cross_maps(models.there.models[0], *pieces))  # (heads, w2 ? w1 and the end, w1 w2 ? and the end)
    (seen,) = collect_head_weights(models, [SentencePair("w1 w2?", "w2? w1")]).maps["said"]
    torch.testing.assert_close(seen, weights[:, [0, 2]][..., [0, 1]], atol=1e-5, rtol=1e-4)


def test_heads_of_a_model_that_translates_back_see_the_same_pairs_from_the_other_side(models: Models) -> None:
    both = Models(models.there, models.there)  # it reverses: there is back
    seen, alone = collect_head_weights(both, PAIRS), collect_head_weights(models, [pair.swapped for pair in PAIRS])
    half = len(alone.heads)
    assert [str(head) for head in seen.heads] == [*map(str, alone.heads), *(f"back.{head}" for head in alone.heads)]
    for together, turned in zip(seen.maps["said"], alone.maps["said"], strict=True):
        torch.testing.assert_close(together[half:], turned.transpose(1, 2))
    aligner = Aligner(tuple(seen.heads[half - 1 : half + 1]), linking=LinkRule(0.9, 0.2))
    assert list(align(both, PAIRS, aligner)) == seen.links(aligner)


def test_a_pair_that_is_empty_or_too_long_has_no_links_and_moves_no_other(models: Models) -> None:
    aligner = Aligner(tuple(heads_of(models)))
    odd = [SentencePair("", "w1"), PAIRS[0], SentencePair(" ".join(["w1"] * 30), "w2"), SentencePair("w1", " ")]
    empty, found, long, blank = align(models, odd, aligner)
    assert empty == long == blank == set()
    assert found == next(align(models, [PAIRS[0]], aligner)) != set()


def test_the_reported_rates_are_those_of_the_links(models: Models) -> None:
    gold = reversed_gold(PAIRS)
    seen = collect_head_weights(models, PAIRS)
    aligner, error = choose_aligner(seen, gold.alignments)
    found = list(align(models, PAIRS, aligner))
    assert alignment_error_rate(found, gold.alignments).value == pytest.approx(error, abs=1e-6)
    judge = Judge(seen, gold.alignments)
    for one in by_layer(judge, judge):
        heads = tuple(head for head in seen.heads if head.layer == one.layer)
        plain = list(align(models, PAIRS, Aligner(heads)))
        assert one.said.value == pytest.approx(alignment_error_rate(plain, gold.alignments).value)
        assert one.score is not None and one.score.value <= min(one.said.value, one.fed.value) + 1e-6


def test_pharaoh_lines_are_sorted() -> None:
    assert as_pharaoh({(10, 1), (2, 3), (2, 0)}) == "2-0 2-3 10-1"
