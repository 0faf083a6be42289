from __future__ import annotations

import os
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from heedful.data import batching
from heedful.data.batching import (
    END,
    JITTER,
    count_over_budget,
    find_batch_starts,
    padding_fraction,
    plan_epoch,
)
from heedful.data.mixing import mix_corpora
from heedful.data.pairs import pairs
from heedful.data.sources import CorpusConfig

LENGTHS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=120)


def columns(lengths: list[tuple[int, int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    table = np.array(lengths, np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(lengths=LENGTHS, budget=st.integers(1, 400), seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_every_index_once_and_no_batch_over_the_budget(
    lengths: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    source, target = columns(lengths)
    plan = plan_epoch(source, target, budget=budget, seed=seed, epoch=epoch)
    assert sorted(index for batch in plan for index in batch.tolist()) == [*range(len(lengths))]
    over = 0
    for batch in plan:
        cost = len(batch) * max(max(lengths[index]) + END for index in batch)
        over += cost > budget
        assert cost <= budget or len(batch) == 1
    assert over == count_over_budget(source, target, budget)


@given(lengths=st.lists(st.integers(1, 60)), budget=st.integers(1, 400))
def test_batches_equal_those_of_a_plain_loop(lengths: list[int], budget: int) -> None:
    """Compared with adding one pair after the other while the batch stays within the budget."""
    lengths.sort()
    starts: list[int] = []
    for at, length in enumerate(lengths):
        if not starts or (at - starts[-1] + 1) * length > budget:
            starts.append(at)
    assert find_batch_starts(np.array(lengths, np.int64), budget) == starts


@given(lengths=LENGTHS, seed=st.integers(0, 9), chosen=st.lists(st.integers(0, 10**6), max_size=150))
def test_a_plan_sorts_by_both_keys(lengths: list[tuple[int, int]], seed: int, chosen: list[int]) -> None:
    """Compared with one sort of the entire corpus by the longer side and, among equals, by source - target with noise."""
    source, target = columns(lengths)
    indices = np.array([index % len(lengths) for index in chosen] if lengths else [], np.int64)
    plan = plan_epoch(source, target, budget=100, seed=seed, epoch=0, indices=indices)
    noise = np.random.default_rng(np.random.SeedSequence((seed, 0))).random(len(indices)) * JITTER
    longer = np.maximum(source, target)[indices] + END
    slant = source[indices] - target[indices] + noise
    order = indices[np.lexsort((np.where(longer % 2 == 0, slant, -slant), longer))].tolist()
    for batch in plan:
        begins = [at for at in range(len(order)) if order[at : at + len(batch)] == batch.tolist()]
        assert begins
    assert sum(map(len, plan)) == len(order)


def test_a_plan_needs_little_more_memory_than_its_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BLOCK", 1 << 12)
    source, target = np.random.default_rng(0).integers(1, 60, (2, 200_000)).astype(np.int32)
    tracemalloc.start()
    chosen = mix_corpora([200_000], [1.0], seed=0, epoch=0)
    plan = plan_epoch(source, target, budget=8192, seed=0, epoch=0, indices=chosen)
    del chosen
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, plan)) == 200_000
    assert peak < 23 * 200_000, "4 bytes an index before and after sorting, 8 its key, and what sorting takes"
    assert kept < 6 * 200_000


@given(lengths=LENGTHS, seed=st.integers(0, 9), block=st.integers(1, 50), multiple=st.sampled_from([1, 4]))
def test_a_plan_does_not_depend_on_the_blocks_that_are_sorted(
    lengths: list[tuple[int, int]], seed: int, block: int, multiple: int
) -> None:
    def plan() -> list[list[int]]:
        batches = plan_epoch(*columns(lengths), budget=90, seed=seed, epoch=1, pad_to_multiple_of=multiple)
        return [batch.tolist() for batch in batches]

    whole = plan()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "BLOCK", block)
        assert plan() == whole


def test_a_plan_is_a_function_of_seed_and_epoch() -> None:
    source, target = np.random.default_rng(0).integers(1, 40, (2, 3000))

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in plan_epoch(source, target, budget=500, seed=seed, epoch=epoch)]

    assert plan(1, 2) == plan(1, 2)
    others = [plan(1, 3), plan(2, 2), plan(2, 1)]
    assert plan(1, 2) not in others
    company = {tuple(sorted(batch)) for batch in plan(1, 2)}
    again = {tuple(sorted(batch)) for batch in plan(1, 3)}
    assert len(company & again) < 0.1 * len(company), "pairs meet others in another epoch"


def test_the_order_of_batches_does_not_follow_length() -> None:
    source, target = np.random.default_rng(0).integers(1, 40, (2, 5000))
    plan = plan_epoch(source, target, budget=500, seed=0, epoch=0)
    longest = [int(source[batch].max()) for batch in plan]
    assert abs(np.corrcoef(np.arange(len(plan)), longest)[0, 1]) < 0.2


def test_padding_equals_a_count_by_hand() -> None:
    source, target = np.array([2, 4, 1]), np.array([3, 3, 6])
    plan = [np.array([0, 1]), np.array([2])]
    # with the end token: sources 3, 5 | 2 and targets 4, 4 | 7; space 2 x 5 + 2 x 4 + 2 + 7
    assert padding_fraction(plan, source, target) == pytest.approx(1 - 25 / 27)
    assert padding_fraction([], source, target) == 0.0


def test_chosen_indices_are_planned_as_often_as_they_are_chosen() -> None:
    source, target = np.arange(1, 31), np.arange(30, 0, -1)
    chosen = np.array([4, 4, 9, 20, 4])
    plan = plan_epoch(source, target, budget=64, seed=0, epoch=0, indices=chosen)
    assert sorted(np.concatenate(plan).tolist()) == sorted(chosen.tolist())


def test_a_million_pairs_are_planned_in_about_a_second() -> None:
    source, target = np.random.default_rng(0).integers(1, 60, (2, 1_000_000))
    start = time.process_time()
    plan = plan_epoch(source, target, budget=8192, seed=0, epoch=0)
    assert time.process_time() - start < 5.0, "a loop over pairs would take longer; the limit leaves room for a busy machine"
    assert sum(map(len, plan)) == 1_000_000


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k is not here")
def test_padding_on_multi30k_is_below_a_tenth() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = [(pair.source, pair.target) for pair in pairs(CorpusConfig(folder="multi30k", languages=("en", "de")))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=8000, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator((text for pair in texts for text in pair), trainer)
    source, target = (
        np.array([len(encoding.ids) for encoding in tokenizer.encode_batch([pair[side] for pair in texts])]) for side in (0, 1)
    )
    plan = plan_epoch(source, target, budget=4096, seed=0, epoch=0)
    assert sum(map(len, plan)) == 28_998
    assert padding_fraction(plan, source, target) < 0.06, "measured 0.051; the promise is 0.10"
