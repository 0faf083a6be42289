from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch
from rich.console import Console

from heedful.errors import DataError
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer
from heedful.vectors.progress import VectorsProgress
from heedful.vectors.table import Term, Vectors, neighbors
from heedful.vectors.tokens import encode_text, token_names
from heedful.vectors.training import VectorsConfig, VectorsStep, default_epochs, train_vectors

CLASSES = {
    "noun": ["dog", "cat", "horse", "goat", "hen"],
    "verb": ["sees", "hears", "follows", "finds"],
    "place": ["garden", "forest", "village", "harbour"],
    "time": ["today", "tomorrow", "often", "never"],
    "adjective": ["old", "young", "red", "quiet"],
}
TEMPLATES = [
    "the adjective noun verb a noun",
    "a noun verb the noun in the place",
    "time the noun verb the adjective noun",
    "in the adjective place a noun verb the noun time",
    "the noun in the place verb nobody time",
    "who verb the adjective noun ?",
]
SMALL = VectorsConfig(dim=32, window=2, negatives=5, epochs=4, min_count=1, subsample=1e-2)


def sentences(count: int) -> list[str]:
    """Templates whose words are drawn from classes: words of a class are interchangeable."""
    draw = random.Random(3)
    chosen = (draw.choice(TEMPLATES).split() for _ in range(count))
    return [" ".join(draw.choice(CLASSES[part]) if part in CLASSES else part for part in parts) for parts in chosen]


def words_tokenizer(lines: list[str]) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), lines)


@pytest.fixture(scope="module")
def learned() -> Vectors:
    lines = sentences(4000)
    tokenizer = words_tokenizer(lines)
    return train_vectors(encode_text(lines, tokenizer), tokenizer, SMALL)


def test_a_words_nearest_neighbor_is_one_that_it_could_be_exchanged_for(learned: Vectors) -> None:
    checked = 0
    for members in CLASSES.values():
        for word in members:
            nearest = neighbors(learned, [Term(1.0, word)], len(members) - 1)
            assert {near.word for near in nearest} == set(members) - {word}
            checked += 1
    assert checked == 21


def test_words_of_one_class_are_nearer_than_others_in_nearly_every_comparison(learned: Vectors) -> None:
    """The area under the ROC curve for pairs of one class against pairs of two, by cosine; at least 0.9."""
    kinds = [(word, kind) for kind, members in CLASSES.items() for word in members]
    rows = [learned.row_of(word) for word, _ in kinds]
    cosines = learned.units[rows] @ learned.units[rows].T
    pairs = [(i, j) for i in range(len(kinds)) for j in range(i)]
    same = np.array([float(cosines[i, j]) for i, j in pairs if kinds[i][1] == kinds[j][1]])
    other = np.array([float(cosines[i, j]) for i, j in pairs if kinds[i][1] != kinds[j][1]])
    assert len(same) == 34
    assert (same[:, None] > other).mean() >= 0.99


def test_words_that_share_contexts_in_pairs_are_nearest_neighbors() -> None:
    """Twenty pairs; of each pair either word is drawn, always between the same two neighbors."""
    draw = random.Random(5)
    lines = [f"left{i} twin{i}{draw.choice('ab')} right{i}" for i in (draw.randrange(20) for _ in range(8000))]
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), lines)
    vectors = train_vectors(encode_text(lines, tokenizer), tokenizer, SMALL)
    right = [neighbors(vectors, [Term(1.0, f"twin{i}a")], 1)[0].word == f"twin{i}b" for i in range(20)]
    assert sum(right) == 20


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    lines = sentences(200)
    tokenizer = words_tokenizer(lines)
    tokens = encode_text(lines, tokenizer)
    first, second = (train_vectors(tokens, tokenizer, SMALL).values for _ in range(2))
    other = train_vectors(tokens, tokenizer, SMALL.model_copy(update={"seed": 2})).values
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_the_loss_decreases_and_the_learning_rate_decays_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.vectors.training.REPORT_EVERY", 1)
    lines = sentences(3000)
    tokenizer = words_tokenizer(lines)
    steps: list[VectorsStep] = []
    train_vectors(encode_text(lines, tokenizer), tokenizer, SMALL, steps.append)
    assert len(steps) >= 40
    means = [float(one.loss.total / one.loss.count) for one in steps]
    assert abs(means[0] - 6 * np.log(2)) < 1e-3  # zero u: every product is 0
    assert np.mean(means[-10:]) < 0.8 * means[0]
    for one in steps:
        assert one.learning_rate == pytest.approx(SMALL.learning_rate * (1 - one.done))


def test_without_subsampling_a_text_of_two_words_stays_finite() -> None:
    lines = ["a b"] * 5000
    tokenizer = words_tokenizer(lines)
    vectors = train_vectors(encode_text(lines, tokenizer), tokenizer, SMALL.model_copy(update={"subsample": 0.0}))
    assert vectors.words == ["a", "b"] and float(vectors.values.abs().max()) < 10


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece", "bpe", "unigram", "bytes"])
def test_token_names_are_unique_for_every_kind_of_tokenizer(kind: str) -> None:
    lines = ["two men, 10 dogs (don't) run.", "a café — ‘déjà vu’ — in the U.S. and more men and dogs"] * 3
    tokenizer = train_tokenizer(TokenizerConfig.model_validate({"kind": kind} | ROOM.get(kind, {})), lines, ["<2de>"])
    names = token_names(tokenizer)
    assert len(names) == len(tokenizer) == len(set(names))
    assert names[tokenizer.specials.pad] == "<pad>"
    tokens = encode_text(lines, tokenizer)
    assert tokens.total == sum(len(tokenizer.encode(line)) for line in lines)
    vectors = train_vectors(tokens, tokenizer, SMALL)
    assert set(vectors.words) <= set(names) and len(vectors.words) == (tokens.counts > 0).sum() - (tokens.counts[3] > 0)


ROOM = {"wordpiece": {"vocab": 100}, "bpe": {"vocab": 100}, "unigram": {"vocab": 60}, "bytes": {"vocab": 300}}


def test_a_long_text_is_encoded_in_parts_to_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = sentences(100)
    tokenizer = words_tokenizer(lines)
    whole = encode_text(lines, tokenizer)
    monkeypatch.setattr("heedful.text.long_lines.MAX_CHARACTERS", 100)
    parts = encode_text(iter(lines), tokenizer)
    assert np.array_equal(whole.ids, parts.ids) and np.array_equal(whole.counts, parts.counts)
    assert (whole.ids == -1).sum() == 100


def test_text_without_enough_words_is_an_error() -> None:
    lines = sentences(5)
    tokenizer = words_tokenizer(lines)
    with pytest.raises(DataError, match=r"0 words occur at least 900 times; expected at least two"):
        train_vectors(encode_text(lines, tokenizer), tokenizer, SMALL.model_copy(update={"min_count": 900}))
    with pytest.raises(DataError, match="has no words"):
        encode_text(["", " "], tokenizer)


def test_without_a_terminal_every_epoch_is_one_line() -> None:
    lines = sentences(300)
    tokenizer = words_tokenizer(lines)
    tokens = encode_text(lines, tokenizer)
    console = Console(file=io.StringIO(), record=True, width=80)
    progress = VectorsProgress(tokens.total, 4, console)
    train_vectors(tokens, tokenizer, SMALL, progress.report)
    progress.close()
    said = console.export_text().splitlines()
    assert [line.split()[:2] for line in said] == [["epoch", str(number)] for number in (1, 2, 3, 4)]
    assert all(line.endswith("k words/s") for line in said)


@pytest.mark.parametrize(("tokens", "times"), [(0, 100), (1_000, 100), (263_000, 20), (1_000_000, 5), (50_000_000, 5)])
def test_a_short_text_has_more_epochs(tokens: int, times: int) -> None:
    assert default_epochs(tokens) == times


def test_the_default_number_of_epochs_depends_on_the_text() -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), sentences(60))
    steps: list[VectorsStep] = []
    train_vectors(encode_text(sentences(60), tokenizer), tokenizer, SMALL.model_copy(update={"epochs": None}), steps.append)
    assert steps[-1].epoch == 99
