"""The search engine: two-stage top-k is exact, and a captured search returns what a plain one does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import END, START, batch_of, predict, random_tables, run_search
from tiny import END as STOP
from tiny import START as GO
from tiny import VARIANTS, Pairs, make_pairs, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.decoder_state import State, States, mask_finished
from heedful.nn.kernels import blockwise_logsumexp
from heedful.nn.model import SequenceModel
from heedful.search import (
    Engines,
    GraphInputs,
    Hypothesis,
    NonFiniteScores,
    SearchConfig,
    SearchResult,
    SourceBatch,
    Sources,
    length_limit,
    search,
    search_batch,
    step_function,
)
from heedful.search.engine import Engine
from heedful.search.expand import BLOCK, EndRule, Expansion, best_candidates


def candidates(logits: torch.Tensor, before: torch.Tensor, count: int, must_end: Sequence[int] = ()) -> Expansion:
    forced = torch.zeros(len(logits), dtype=torch.bool)
    forced[list(must_end)] = True
    return best_candidates(logits, before, blockwise_logsumexp(logits, BLOCK)[0], EndRule(forced, END), count)


@given(seed=st.integers(0, 10**6), beam=st.integers(1, 5), extra=st.integers(1, 300))
def test_two_stage_selection_is_the_top_k_of_a_large_vocabulary(seed: int, beam: int, extra: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(2 * beam, 500 + extra, generator=draws)
    before = torch.randn(2, beam, generator=draws)
    scores, row, token = candidates(logits, before, beam)
    expected = (logits.view(2, beam, -1) + before[..., None]).flatten(1).topk(beam)
    assert_close(scores, expected.values)
    assert torch.equal(row * logits.shape[1] + token, expected.indices)


@pytest.mark.parametrize("other", [0, 4 * BLOCK])
def test_the_last_block_may_be_short_and_others_may_be_all_minus_infinity(other: int) -> None:
    logits = torch.full((1, 4 * BLOCK + 3), -float("inf"))
    logits[0, other], logits[0, 4 * BLOCK + 2] = 1.0, 2.0
    scores, _, token = candidates(logits, torch.zeros(1, 1), 3)
    assert scores.tolist() == [[2.0, 1.0, -float("inf")]]
    assert token[0, :2].tolist() == [4 * BLOCK + 2, other]


def test_a_row_that_must_end_has_only_the_end_token() -> None:
    logits = torch.randn(2, 3 * BLOCK, generator=torch.Generator().manual_seed(1))
    scores, row, token = candidates(logits, torch.tensor([[0.0, -1.0]]), 3, must_end=[0])
    ends = [END if k == 0 else None for k in row[0].tolist()]
    assert all(end in (None, chosen) for end, chosen in zip(ends, token[0].tolist(), strict=True))
    assert scores[0].max() == max(float(logits[0, END]), float(logits[1].max()) - 1)
    last = candidates(logits, torch.tensor([[0.0, -1.0]]), 3, must_end=[0, 1]).scores[0]
    assert last[2] == -float("inf")
    assert_close(last[:2].sort().values, torch.stack((logits[0, END], logits[1, END] - 1)).sort().values)


METHODS: list[dict[str, Any]] = [{"method": "greedy"}, {"beam": 3, "n_best": 2}, {"method": "sample", "n_best": 2}]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_a_captured_search_returns_what_a_plain_one_does(
    searched: SequenceModel, pairs: Pairs, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured steps always write to the same tensors, finished sources are polled every few steps, and the remaining ones may
    move to a smaller engine."""
    config = SearchConfig(min_length=9, **options)  # the third source continues when the others must have ended
    monkeypatch.setattr(Engine, "step", Engine.compute_step)  # instead of a graph: the same step again, on the same tensors
    monkeypatch.setattr("heedful.search.engine.SHRINK_FACTOR", 2)

    def batch(slots: int) -> SourceBatch:
        return SourceBatch(searched.start(pairs.source, pairs.mask, room=slots), torch.tensor([8, 6, 12]), [0, 1, 2], [[]] * 3)

    def start_batch() -> Callable[[int, int], SourceBatch | None]:
        batches = iter([batch(0)])
        return lambda count, slots: next(batches, None)

    def placeholder_states(sources: int, slots: int) -> States:
        source, mask = pairs.source[:1].repeat(sources, 1), torch.ones_like(pairs.mask[:1]).repeat(sources, 1)
        return searched.start(source, mask, room=slots)

    with torch.inference_mode():
        expected = search_batch(step_function(searched), batch(36), config, start=GO, end=STOP)
        for min_capacity in (64, 1):
            monkeypatch.setattr("heedful.search.engine.MIN_CAPACITY", min_capacity)
            engines: Engines = {}
            for _ in range(2):  # the same engine again, with the state that the first search left in it
                graph = GraphInputs(6, placeholder_states, torch.device("cpu"))
                sources = Sources(start_batch(), capacity=4, max_limit=12, graph=graph)  # one more than there are sources
                results = search(step_function(searched), sources, config, start=GO, end=STOP, engines=engines)
                check(dict(results), expected)
                (engine,) = engines.values()
            assert (engine.smaller is not None) == (min_capacity == 1)


def test_interleaved_searches_do_not_share_an_engine(
    searched: SequenceModel, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in threads that translate with one system."""
    config = SearchConfig(beam=2)
    monkeypatch.setattr(Engine, "step", Engine.compute_step)

    def start(source: Tensor, engines: Engines | None = None) -> Iterator[SearchResult]:
        mask, limits = torch.ones_like(source, dtype=torch.bool), torch.tensor([4, 9])
        batches = iter([SourceBatch(searched.start(source, mask, room=0), limits, [0, 1], [[]] * 2)])

        def placeholder_states(sources: int, slots: int) -> States:
            return searched.start(pairs.source[:1].repeat(sources, 1), mask[:1].repeat(sources, 1), room=slots)

        graph = GraphInputs(6, placeholder_states, torch.device("cpu"))
        both = Sources(lambda count, slots: next(batches, None), capacity=2, max_limit=12, graph=graph)
        return search(step_function(searched), both, config, start=GO, end=STOP, engines=engines)

    sources = pairs.source[:1].repeat(2, 1), pairs.source[:1].flip(1).repeat(2, 1)
    engines: Engines = {}
    with torch.inference_mode():
        expected = [[hypotheses for _, hypotheses in sorted(start(source))] for source in sources]
        first, second = (start(source, engines) for source in sources)
        results = [dict([next(first)]), dict([next(second)])]
        results[0] |= dict(first)
        results[1] |= dict(second)
    for interleaved, alone in zip(results, expected, strict=True):
        check(interleaved, alone)
    assert len(engines) == 1


def test_rows_of_finished_sources_own_no_cache_slots() -> None:
    owned_slots = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)  # two sources, two rows each
    left = mask_finished(State(None, None, None, owned_slots, 3), torch.tensor([True, False]))
    assert left.owned_slots.tolist() == [[False] * 3, [False] * 3, *owned_slots[2:].tolist()]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_compacting_the_cache_at_every_step_changes_nothing(
    searched: SequenceModel, pairs: Pairs, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sources with a capacity of two, so that one is inserted later among the cache slots of the others."""
    config = SearchConfig(min_length=3, **options)

    def three_sources() -> Callable[[int, int], SourceBatch | None]:
        source_ids = iter(range(3))

        def start_batch(count: int, slots: int) -> SourceBatch | None:
            chosen = list(islice(source_ids, count))
            if not chosen:
                return None
            state = searched.start(pairs.source[chosen], pairs.mask[chosen], room=slots)
            return SourceBatch(state, torch.tensor([12, 6, 9])[chosen], chosen, [[]] * len(chosen))

        return start_batch

    results = []
    for every in (1, 64):
        monkeypatch.setattr("heedful.search.engine.COMPACT_EVERY", every)
        with torch.inference_mode():
            sources = Sources(three_sources(), capacity=2, max_limit=12, exceed_capacity=True)
            results.append(dict(search(step_function(searched), sources, config, start=GO, end=STOP)))
    check(results[0], [results[1][source_id] for source_id in range(3)])


def check(results: dict[int, list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert sorted(results) == list(range(len(expected)))
    for source_id, hypotheses in enumerate(expected):
        assert [h.tokens for h in results[source_id]] == [h.tokens for h in hypotheses]
        assert [h.score for h in results[source_id]] == pytest.approx([h.score for h in hypotheses], abs=1e-5)


def test_a_long_sentence_does_not_delay_the_others() -> None:
    """Twelve sources with a capacity of two: the number of steps is about half the total length."""
    tables = random_tables(12, vocab=4, limit=6, seed=3)
    tables[0, :, END] = -30.0  # ends only at its limit
    source_ids = iter(range(12))
    calls = 0

    def start_batch(count: int, slots: int) -> SourceBatch | None:
        chosen = list(islice(source_ids, count))
        return batch_of(tables[chosen], [6] * len(chosen), chosen) if chosen else None

    def counted(tokens: torch.Tensor, states: Any) -> Any:
        nonlocal calls
        calls += 1
        return predict(tokens, states)

    sources = Sources(start_batch, capacity=2, max_limit=6, exceed_capacity=True)
    results = dict(search(counted, sources, SearchConfig(method="greedy"), start=START, end=END))
    lengths = [len(results[source_id][0].tokens) + 1 for source_id in range(12)]
    assert lengths[0] == 6
    assert sum(lengths) / 2 <= calls <= sum(lengths) / 2 + max(lengths)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("prefixes", [slice(0, 1), slice(1, None)], ids=["first step", "later"])
@pytest.mark.parametrize("options", [*METHODS, {"beam": 2, "no_repeat": 2}, {"method": "sample", "top_k": 2}], ids=str)
def test_nonfinite_logits_raise_an_error_with_the_source_id(options: dict[str, Any], prefixes: slice, value: float) -> None:
    tables = random_tables(3, vocab=4, limit=4, seed=1)
    tables[:, 0, END] = -9.0  # no source ends at the first step
    assert len(run_search(batch_of(tables, [4] * 3), **options)) == 3
    tables[1, prefixes, 3] = value
    with pytest.raises(NonFiniteScores, match="the model's scores are not finite") as error:
        run_search(batch_of(tables, [4] * 3), **options)
    assert error.value.source_id == 1


def test_nonfinite_logits_invalidate_hypotheses_that_are_already_finished() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=1)
    tables[:, :, END] += 3.0  # the empty hypothesis is finished first, and search continues for a second one
    tables[0, 1:] = math.nan
    with pytest.raises(NonFiniteScores):
        run_search(batch_of(tables, [4]), beam=3, n_best=2, length_penalty=2.0)


def test_a_row_without_a_finite_logit_is_an_error() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=1)
    tables[0, 0] = -math.inf
    with pytest.raises(NonFiniteScores):
        run_search(batch_of(tables, [4]), beam=2)


def choices(method: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options at and within the bounds of their ranges."""
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "beam": {
            "beam": st.sampled_from([1, 2, 5, 20]),
            "penalty": st.sampled_from(["wu", "power"]),
            "length_penalty": st.sampled_from([0.0, 0.6, 1.0, 10.0]),
        },
        "greedy": {},
        "sample": {
            "n_best": st.sampled_from([1, 3, 30]),
            "temperature": st.sampled_from([0.0, 1e-6, 1e-3, 1.0, 1000.0]),
            "top_k": st.sampled_from([0, 1, 10**6]),
            "top_p": st.sampled_from([1e-6, 0.5, 1.0]),
            "seed": st.sampled_from([0, 2**63 - 1]),
        },
    }
    lengths = st.sampled_from([1, 2, 7, 20])
    shared = {"max_length": lengths, "min_length": lengths | st.just(0), "no_repeat": st.sampled_from([0, 1, 2, 1000])}
    return st.fixed_dictionaries({"method": st.just(method)}, optional=own[method] | shared | {"max_extra": st.integers(0, 9)})


@settings(max_examples=60)
@given(options=st.sampled_from(["beam", "greedy", "sample"]).flatmap(choices), most=st.booleans())
def test_all_search_options_give_finite_scores(options: dict[str, Any], most: bool) -> None:
    pairs, model = make_pairs(), tiny_model(VARIANTS[0])
    if options.get("min_length", 0) > options.get("max_length", 256):
        del options["min_length"]
    if most and options["method"] == "beam":
        options["n_best"] = options.get("beam", 4)
    config = SearchConfig(**options)
    limits = torch.tensor([length_limit(config, length, 0) for length in pairs.mask.sum(1).tolist()])
    with torch.inference_mode():
        state = model.start(pairs.source, pairs.mask, room=int(limits.max()) * config.rows)
        batch = SourceBatch(state, limits, [0, 1, 2**62], [[]] * 3)
        results = search_batch(step_function(model), batch, config, start=GO, end=STOP)
    for hypotheses, limit in zip(results, limits.tolist(), strict=True):
        assert 1 <= len(hypotheses) <= config.n_best
        assert len(hypotheses) == config.n_best or config.method == "beam"
        assert all(math.isfinite(h.score) and math.isfinite(h.log_probability) for h in hypotheses)
        assert all(len(h.tokens) < limit for h in hypotheses)


def test_a_length_penalty_too_large_for_float32_is_an_error() -> None:
    with pytest.raises(ConfigError, match="divides the score of 5001 tokens by"):
        run_search(batch_of(random_tables(1, 3, 2, seed=1), [5001]), beam=2, penalty="power", length_penalty=10.0)


@pytest.mark.parametrize("options", [{"beam": 10_000}, {"method": "sample", "n_best": 10_000}], ids=str)
def test_a_beam_too_large_for_memory_is_an_error(options: dict[str, Any]) -> None:
    pairs, model, config = make_pairs(), tiny_model(VARIANTS[0]), SearchConfig(**options)
    with torch.inference_mode(), pytest.raises(ConfigError, match=r"of 10000 needs 2\.8 GiB .* expected at most 2 GiB"):
        state = model.start(pairs.source[:1], None, room=30 * config.rows)
        batch = SourceBatch(state, torch.tensor([30]), [0], [[]])
        search_batch(step_function(model), batch, config, start=GO, end=STOP)
