"""Loss by length: the loss of scoring, grouped into buckets."""

from __future__ import annotations

import pytest
import torch
from workshop import heed, write_recipe

from heedful.errors import HeedfulError
from heedful.inspection.measures.lengths import TokenScores, by_length, by_position, join_neighbors, score_examples
from heedful.tasks.translation.data import Examples
from heedful.tasks.translation.predictor import Translator

EXAMPLES = Examples(["w1 w2", "w3", "w4 w5 w6", "w7 w8", "w9"], ["w2 w1", "w3", "w6 w5 w4", "w8 w7", "w9"])


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("lengths")
    limits = "model.position=learned", "model.max_positions=12", "data.max_length=10"
    assert heed("train", write_recipe(folder), "training.steps=2", *limits, "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def test_losses_equal_those_of_score(translator: Translator) -> None:
    scores = score_examples(translator.system, EXAMPLES)
    scored = translator.score(*EXAMPLES)
    assert len(scores) == 5
    for one, score in zip(scores, scored, strict=True):
        assert score is not None and len(one.losses) == score.tokens
        assert float(one.losses.sum()) == pytest.approx(-score.log_probability, abs=1e-4)


def test_neighbors_are_concatenated_and_the_remainder_dropped() -> None:
    assert join_neighbors(EXAMPLES, 2) == Examples(["w1 w2 w3", "w4 w5 w6 w7 w8"], ["w2 w1 w3", "w6 w5 w4 w8 w7"])


def test_buckets_cover_all_tokens() -> None:
    scores = [TokenScores(torch.arange(1.0, length + 1), torch.ones(length)) for length in (2, 3, 5)]
    lengths, positions = by_length(scores, 2), by_position(scores, 2)
    assert [(one.first, one.last, one.sentences, one.tokens) for one in lengths] == [(1, 2, 1, 2), (3, 4, 1, 3), (5, 6, 1, 5)]
    assert [one.loss for one in lengths] == pytest.approx([1.5, 2.0, 3.0])
    assert [(one.first, one.sentences, one.tokens) for one in positions] == [(1, 3, 6), (3, 2, 3), (5, 1, 1)]
    assert [one.loss for one in positions] == pytest.approx([1.5, 10 / 3, 5.0])
    assert all(one.accuracy == 1 for one in lengths)


def test_learned_positions_raise_an_error_past_their_table(translator: Translator) -> None:
    with pytest.raises(HeedfulError, match="a sequence of 13 tokens was given to a model with 12 learned positions"):
        score_examples(translator.system, Examples([" ".join(["w1"] * 12)], ["w1"]))
