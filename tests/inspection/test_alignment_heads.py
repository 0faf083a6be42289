"""Word alignment of many pairs: batches equal single pairs, in order, and reported error rates are those of the links."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import source_maps
from workshop import WORDS, heed, write_recipe

from heedful.data.gold import Gold, SentencePair
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.measures.alignment_heads import (
    MOMENTS,
    Aligner,
    Models,
    align,
    as_pharaoh,
    choose_aligner,
    collect_head_weights,
    heads_of,
)
from heedful.inspection.measures.alignment_links import LinkRule
from heedful.inspection.measures.alignment_scores import GoldSet, by_layer
from heedful.inspection.measures.trace import trace_translation, word_maps
from heedful.search import SearchConfig
from heedful.tasks.translation.predictor import Translator

PAIRS = [
    SentencePair(" ".join(WORDS[i : i + n]), " ".join(reversed(WORDS[i : i + n]))) for i, n in ((0, 3), (4, 8), (2, 1), (9, 5))
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder: Path = tmp_path_factory.mktemp("aligning")
    recipe = write_recipe(folder)
    with (folder / "pairs.tsv").open("a") as file:
        file.write("w1 w2?\tw2? w1\n")  # punctuation in the vocabulary
    assert heed("train", recipe, "data.max_length=10", "--run", folder / "run") == 0
    return Models(Translator.load(folder / "run").system)


def reversed_gold(pairs: list[SentencePair]) -> Gold:
    """The corpus reverses: word i becomes word n - 1 - i."""
    lengths = [len(pair.source.split()) for pair in pairs]
    sure = [frozenset((i, n - 1 - i) for i in range(n)) for n in lengths]
    return Gold(pairs, [Alignment(links, links) for links in sure])


@pytest.mark.parametrize("moment", MOMENTS)
def test_batched_links_equal_those_of_single_pairs_in_order(models: Models, moment: str) -> None:
    aligner = Aligner(tuple(heads_of(models)), moment, LinkRule(0.9, 0.2))  # type: ignore[arg-type]
    batched = list(align(models, PAIRS, aligner))
    assert batched == [next(align(models, [pair], aligner)) for pair in PAIRS]
    assert batched == collect_head_weights(models, PAIRS).links(aligner)
    assert all(batched) and len({as_pharaoh(links) for links in batched}) > 1


def test_head_weights_equal_those_of_a_single_trace(models: Models) -> None:
    weights_by_head = collect_head_weights(models, PAIRS)
    for pair, one in zip(PAIRS, weights_by_head.maps["predict"], strict=True):
        trace = trace_translation(models.forward, pair.source, SearchConfig(), pair.target)
        torch.testing.assert_close(one, torch.cat(list(word_maps(trace).values())), atol=1e-5, rtol=1e-4)


def test_the_step_that_consumes_a_word_predicts_the_next(models: Models) -> None:
    weights_by_head = collect_head_weights(models, PAIRS)
    for predict, consume in zip(weights_by_head.maps["predict"], weights_by_head.maps["consume"], strict=True):
        torch.testing.assert_close(consume[:, :-1], predict[:, 1:], atol=1e-5, rtol=1e-4)  # one piece per word


def test_attention_to_punctuation_does_not_count_for_its_word(models: Models) -> None:
    tokenizer = models.forward.source_tokenizer
    source, target = tokenizer.encode("w1 w2?"), tokenizer.encode("w2? w1")
    specials = tokenizer.specials
    pieces = torch.tensor([[*source, specials.end]]), torch.tensor([[specials.start, *target]])
    weights = torch.cat(source_maps(models.forward.models[0], *pieces))  # (heads, w2 ? w1 and the end, w1 w2 ? and the end)
    (weights_by_head,) = collect_head_weights(models, [SentencePair("w1 w2?", "w2? w1")]).maps["predict"]
    torch.testing.assert_close(weights_by_head, weights[:, [0, 2]][..., [0, 1]], atol=1e-5, rtol=1e-4)


def test_heads_of_the_reverse_model_use_swapped_pairs(models: Models) -> None:
    both = Models(models.forward, models.forward)  # it reverses words, so it is its own reverse model
    weights_by_head, alone = collect_head_weights(both, PAIRS), collect_head_weights(models, [pair.swapped for pair in PAIRS])
    half = len(alone.heads)
    assert [str(head) for head in weights_by_head.heads] == [*map(str, alone.heads), *(f"back.{head}" for head in alone.heads)]
    for batched, swapped in zip(weights_by_head.maps["predict"], alone.maps["predict"], strict=True):
        torch.testing.assert_close(batched[half:], swapped.transpose(1, 2))
    aligner = Aligner(tuple(weights_by_head.heads[half - 1 : half + 1]), rule=LinkRule(0.9, 0.2))
    assert list(align(both, PAIRS, aligner)) == weights_by_head.links(aligner)


def test_empty_and_too_long_pairs_have_no_links(models: Models) -> None:
    aligner = Aligner(tuple(heads_of(models)))
    odd = [SentencePair("", "w1"), PAIRS[0], SentencePair(" ".join(["w1"] * 30), "w2"), SentencePair("w1", " ")]
    empty, found, long, blank = align(models, odd, aligner)
    assert empty == long == blank == set()
    assert found == next(align(models, [PAIRS[0]], aligner)) != set()


def test_reported_error_rates_equal_those_of_the_links(models: Models) -> None:
    gold = reversed_gold(PAIRS)
    weights_by_head = collect_head_weights(models, PAIRS)
    aligner, error = choose_aligner(weights_by_head, gold.alignments)
    found = list(align(models, PAIRS, aligner))
    assert alignment_error_rate(found, gold.alignments).value == pytest.approx(error, abs=1e-6)
    gold_set = GoldSet(weights_by_head, gold.alignments)
    for one in by_layer(gold_set, gold_set):
        heads = tuple(head for head in weights_by_head.heads if head.layer == one.layer)
        plain = list(align(models, PAIRS, Aligner(heads)))
        assert one.predict.value == pytest.approx(alignment_error_rate(plain, gold.alignments).value)
        assert one.score is not None and one.score.value <= min(one.predict.value, one.consume.value) + 1e-6


def test_pharaoh_lines_are_sorted() -> None:
    assert as_pharaoh({(10, 1), (2, 3), (2, 0)}) == "2-0 2-3 10-1"
