"""BPE-dropout: with p = 0 the library's BPE, otherwise a pure function of (seed, epoch, index)."""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer
from heedful.text.bpe_dropout import POOL, BpeDropout
from heedful.text.tokenizer import Kind

LINES = ["the lower the newer, the slower the lowest", "newest and widest: 10 towers  lower 20 flowers"] * 3
KINDS: list[Kind] = ["bpe", "bytes"]


@cache
def trained(kind: Kind, dropout: float = 0.0) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=300 if kind == "bytes" else 90, dropout=dropout)
    return train_tokenizer(config, LINES, tags=["<2de>", "<mask>"])


PARTS = [st.sampled_from(["<2de>", "<2de> ", "<mask>", " ", "  ", "lower", "newest", "10", ",", "▁"]), st.text()]
TEXT = st.lists(st.one_of(PARTS)).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=TEXT)
def test_dropout_of_zero_equals_the_library(kind: Kind, text: str) -> None:
    own = trained(kind).codec.sampler(0.0)
    assert own.encode(text, seed=1, epoch=2, index=3) == trained(kind).encode(text)


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k not read")
def test_dropout_of_zero_equals_the_library_on_real_text() -> None:
    path = Path(os.environ["HEED_DATA"], "multi30k", "valid.de.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    tokenizer = train_tokenizer(TokenizerConfig(vocab=2000), lines)
    own = tokenizer.codec.sampler(0.0)
    assert len(lines) == 1014
    assert [own.encode(line, seed=0, epoch=0, index=0) for line in lines] == tokenizer.encode_many(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_without_dropout_samples_what_it_encodes(kind: Kind) -> None:
    assert trained(kind).encode_sampled(LINES[0], seed=1, epoch=2, index=3) == trained(kind).encode(LINES[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_segmentation_does_not_depend_on_earlier_calls(kind: Kind) -> None:
    asked = [(line, seed, epoch, index) for line in LINES[:2] for seed in (1, 2) for epoch in (0, 1) for index in (5, 6)]

    def answers(order: list[tuple[str, int, int, int]]) -> dict[tuple[str, int, int, int], list[int]]:
        fresh = Tokenizer.from_json(trained(kind, 0.2).to_json())
        return {key: fresh.encode_sampled(key[0], seed=key[1], epoch=key[2], index=key[3]) for key in order}

    assert answers(asked) == answers(asked[::-1]) == answers(asked[::3] + asked)


def test_clearing_the_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [trained("bpe", 0.2).encode_sampled(LINES[0], seed=1, epoch=epoch, index=0) for epoch in range(20)]
    monkeypatch.setattr("heedful.text.bpe_dropout.CACHE_SIZE", 2)
    fresh = Tokenizer.from_json(trained("bpe", 0.2).to_json())
    assert [fresh.encode_sampled(LINES[0], seed=1, epoch=epoch, index=0) for epoch in range(20)] == before
    assert len(fresh.sampler.pool) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_segmentation_decodes_to_the_text_and_epochs_differ(kind: Kind) -> None:
    tokenizer = trained(kind, 0.2)
    for seed in (0, -7, 2**70):
        rows = [tokenizer.encode_sampled(LINES[1], seed=seed, epoch=epoch, index=4) for epoch in range(30)]
        assert set(tokenizer.decode_many(rows)) == {LINES[1]}
        assert len(set(map(tuple, rows))) > 10
        assert sum(map(len, rows)) > 30 * len(tokenizer.encode(LINES[1]))


def one_merge(dropout: float) -> BpeDropout:
    tokenizer = train_tokenizer(TokenizerConfig(vocab=4 + 3 + 1, min_frequency=1), ["ab ab ab"])
    assert tokenizer.pieces([7]) == ["ab"]
    return tokenizer.codec.sampler(dropout)


def test_merges_are_dropped_with_the_given_probability() -> None:
    sampler = one_merge(0.3)
    drawn = [sampler.segmentation(seed, "ab", entry) for seed in range(100) for entry in range(POOL)]
    merged = sum(len(ids) == 1 for ids in drawn) / len(drawn)
    assert abs(merged - 0.7) < 4 * (0.3 * 0.7 / len(drawn)) ** 0.5  # four standard errors


def test_pool_entries_are_uniform_over_positions_indices_and_epochs() -> None:
    sampler = one_merge(0.5)
    entries = [sampler.segmentation(0, "▁ab", entry) for entry in range(POOL)]
    expected = sum(map(len, entries)) / POOL
    text = "ab ab ab ab"
    counts = [len(sampler.encode(text, seed=0, epoch=e, index=i)) / 4 for e in range(25) for i in range(25)]
    assert abs(sum(counts) / len(counts) - expected) < 0.05
    first_words = {tuple(sampler.encode("ab", seed=0, epoch=0, index=i)) for i in range(40)}
    assert len(first_words) > 1


def test_dropping_nearly_everything_leaves_characters() -> None:
    sampler = trained("bpe", 0.2).codec.sampler(1 - 1e-12)
    ids = sampler.encode("lower the", seed=0, epoch=0, index=0)
    assert trained("bpe", 0.2).pieces(ids) == list("▁lower▁the")
