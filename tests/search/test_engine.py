"""The engine: two stages find what one would, and a captured step does what a plain one does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import END, START, find, group, predict, random_tables
from tiny import END as STOP
from tiny import START as GO
from tiny import VARIANTS, Pairs, Speaker, make_pairs, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.decoder_state import State, States, mask_finished
from heedful.nn.kernels import blockwise_logsumexp
from heedful.search import (
    Engines,
    Group,
    Hypothesis,
    NonFiniteScores,
    Query,
    SearchConfig,
    limits_for,
    search,
    search_group,
    step_function,
)
from heedful.search.engine import Engine
from heedful.search.expand import BLOCK, EndRule, Expansion, best_candidates


def found(logits: torch.Tensor, before: torch.Tensor, count: int, must_end: Sequence[int] = ()) -> Expansion:
    forced = torch.zeros(len(logits), dtype=torch.bool)
    forced[list(must_end)] = True
    return best_candidates(logits, before, blockwise_logsumexp(logits, BLOCK)[0], EndRule(forced, END), count)


@given(seed=st.integers(0, 10**6), beam=st.integers(1, 5), extra=st.integers(1, 300))
def test_the_best_of_a_large_vocabulary_are_found_in_two_stages(seed: int, beam: int, extra: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    logits = torch.randn(2 * beam, 500 + extra, generator=draws)
    before = torch.randn(2, beam, generator=draws)
    scores, row, token = found(logits, before, beam)
    expected = (logits.view(2, beam, -1) + before[..., None]).flatten(1).topk(beam)
    assert_close(scores, expected.values)
    assert torch.equal(row * logits.shape[1] + token, expected.indices)


@pytest.mark.parametrize("other", [0, 4 * BLOCK])
def test_the_last_block_may_be_short_and_others_may_hold_nothing(other: int) -> None:
    logits = torch.full((1, 4 * BLOCK + 3), -float("inf"))
    logits[0, other], logits[0, 4 * BLOCK + 2] = 1.0, 2.0
    scores, _, token = found(logits, torch.zeros(1, 1), 3)
    assert scores.tolist() == [[2.0, 1.0, -float("inf")]]
    assert token[0, :2].tolist() == [4 * BLOCK + 2, other]


def test_a_row_that_must_end_offers_nothing_else() -> None:
    logits = torch.randn(2, 3 * BLOCK, generator=torch.Generator().manual_seed(1))
    scores, row, token = found(logits, torch.tensor([[0.0, -1.0]]), 3, must_end=[0])
    ends = [END if k == 0 else None for k in row[0].tolist()]
    assert all(end in (None, said) for end, said in zip(ends, token[0].tolist(), strict=True))
    assert scores[0].max() == max(float(logits[0, END]), float(logits[1].max()) - 1)
    last = found(logits, torch.tensor([[0.0, -1.0]]), 3, must_end=[0, 1]).scores[0]
    assert last[2] == -float("inf")
    assert_close(last[:2].sort().values, torch.stack((logits[0, END], logits[1, END] - 1)).sort().values)


METHODS: list[dict[str, Any]] = [{"method": "greedy"}, {"beam": 3, "n_best": 2}, {"method": "sample", "n_best": 2}]


@pytest.mark.parametrize("fewest", [64, 1])
@pytest.mark.parametrize("options", METHODS, ids=str)
def test_a_captured_search_finds_what_a_plain_one_finds(
    plain: Speaker, pairs: Pairs, options: dict[str, Any], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured steps write to the same tensors for ever, who is done is only looked at once in a while, and those who are
    left may move to fewer places."""
    config = SearchConfig(min_length=9, **options)  # the third source goes on when the others must have ended
    monkeypatch.setattr(Engine, "step", Engine.take_step)  # stands for a graph: the same step again, on the same tensors
    for name, value in {"FEWER": 2, "FEWEST": fewest}.items():
        monkeypatch.setattr(f"heedful.search.engine.{name}", value)

    def asked(slots: int) -> Group:
        return Group(plain.start(pairs.source, pairs.mask, room=slots), torch.tensor([8, 6, 12]), [0, 1, 2], [[]] * 3)

    def arriving() -> Callable[[int, int], Group | None]:
        groups = iter([asked(0)])
        return lambda count, slots: next(groups, None)

    def blank(sources: int, slots: int) -> States:
        source, mask = pairs.source[:1].repeat(sources, 1), torch.ones_like(pairs.mask[:1]).repeat(sources, 1)
        return plain.start(source, mask, room=slots)

    with torch.inference_mode():
        expected = search_group(step_function(plain), asked(36), config, start=GO, end=STOP)
        engines: Engines = {}
        for _ in range(2):  # the same engine again, with whatever the first search left in it
            query = Query(step_function(plain), arriving(), GO, STOP, 4, 12, width=6, blank=blank)  # one place too many
            check(dict(search(query, config, engines)), expected)
            (engine,) = engines.values()
    assert (engine.smaller is not None) == (fewest == 1)


def test_searches_that_take_turns_do_not_share_an_engine(plain: Speaker, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads do that translate by one system."""
    config = SearchConfig(beam=2)
    monkeypatch.setattr(Engine, "step", Engine.take_step)

    def query(source: Tensor) -> Query:
        whole, limits = torch.ones_like(source, dtype=torch.bool), torch.tensor([4, 9])
        groups = iter([Group(plain.start(source, whole, room=0), limits, [0, 1], [[]] * 2)])

        def blank(sources: int, slots: int) -> States:
            return plain.start(pairs.source[:1].repeat(sources, 1), whole[:1].repeat(sources, 1), room=slots)

        return Query(step_function(plain), lambda count, slots: next(groups, None), GO, STOP, 2, 12, width=6, blank=blank)

    sources = pairs.source[:1].repeat(2, 1), pairs.source[:1].flip(1).repeat(2, 1)
    engines: Engines = {}
    with torch.inference_mode():
        expected = [[found for _, found in sorted(search(query(source), config))] for source in sources]
        first, second = (search(query(source), config, engines) for source in sources)
        found = [dict([next(first)]), dict([next(second)])]
        found[0] |= dict(first)
        found[1] |= dict(second)
    for owned_slots, theirs in zip(found, expected, strict=True):
        check(owned_slots, theirs)
    assert len(engines) == 1


def test_rows_of_sources_that_are_done_own_nothing() -> None:
    owned_slots = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)  # two sources, two rows each
    left = mask_finished(State(None, None, None, owned_slots, 3), torch.tensor([True, False]))
    assert left.owned_slots.tolist() == [[False] * 3, [False] * 3, *owned_slots[2:].tolist()]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_clearing_away_at_every_step_changes_nothing(
    plain: Speaker, pairs: Pairs, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sources, two places, so that one comes later and stands among the slots of those before it."""
    config = SearchConfig(min_length=3, **options)

    def arriving() -> Callable[[int, int], Group | None]:
        names = iter(range(3))

        def arrive(count: int, slots: int) -> Group | None:
            chosen = [name for _, name in zip(range(count), names, strict=False)]
            if not chosen:
                return None
            state = plain.start(pairs.source[chosen], pairs.mask[chosen], room=slots)
            return Group(state, torch.tensor([12, 6, 9])[chosen], chosen, [[]] * len(chosen))

        return arrive

    found = []
    for every in (1, 64):
        monkeypatch.setattr("heedful.search.engine.TIDY_EVERY", every)
        with torch.inference_mode():
            query = Query(step_function(plain), arriving(), GO, STOP, capacity=2, longest=12, more=True)
            found.append(dict(search(query, config)))
    check(found[0], [found[1][name] for name in range(3)])


def check(answers: dict[int, list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert sorted(answers) == list(range(len(expected)))
    for name, found in enumerate(expected):
        assert [h.tokens for h in answers[name]] == [h.tokens for h in found]
        assert [h.score for h in answers[name]] == pytest.approx([h.score for h in found], abs=1e-5)


def test_a_long_sentence_does_not_hold_up_the_others() -> None:
    """Twelve sources, two places: the steps that are taken are about half of what all of them need."""
    tables = random_tables(12, vocab=4, limit=6, seed=3)
    tables[0, :, END] = -30.0  # never ends by itself
    names = iter(range(12))
    calls = 0

    def arrive(count: int, slots: int) -> Group | None:
        chosen = [name for _, name in zip(range(count), names, strict=False)]
        return group(tables[chosen], [6] * len(chosen), chosen) if chosen else None

    def counted(tokens: torch.Tensor, states: Any) -> Any:
        nonlocal calls
        calls += 1
        return predict(tokens, states)

    query = Query(counted, arrive, START, END, capacity=2, longest=6, more=True)
    answers = dict(search(query, SearchConfig(method="greedy")))
    lengths = [len(answers[name][0].tokens) + 1 for name in range(12)]
    assert lengths[0] == 6
    assert sum(lengths) / 2 <= calls <= sum(lengths) / 2 + max(lengths)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("beginnings", [slice(0, 1), slice(1, None)], ids=["at once", "later"])
@pytest.mark.parametrize("options", [*METHODS, {"beam": 2, "no_repeat": 2}, {"method": "sample", "top_k": 2}], ids=str)
def test_logits_that_are_not_finite_are_an_error_that_names_the_source(
    options: dict[str, Any], beginnings: slice, value: float
) -> None:
    tables = random_tables(3, vocab=4, limit=4, seed=1)
    tables[:, 0, END] = -9.0  # nobody ends at once
    assert len(find(group(tables, [4] * 3), **options)) == 3
    tables[1, beginnings, 3] = value
    with pytest.raises(NonFiniteScores, match="the model's scores are not finite") as refusal:
        find(group(tables, [4] * 3), **options)
    assert refusal.value.name == 1


def test_what_was_found_before_scores_stop_being_finite_is_no_answer() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=1)
    tables[:, :, END] += 3.0  # the empty hypothesis is found first, and the search goes on for a second one
    tables[0, 1:] = math.nan
    with pytest.raises(NonFiniteScores):
        find(group(tables, [4]), beam=3, n_best=2, length_penalty=2.0)


def test_a_row_without_any_finite_logit_is_an_error() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=1)
    tables[0, 0] = -math.inf
    with pytest.raises(NonFiniteScores):
        find(group(tables, [4]), beam=2)


def choices(method: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options at and between the ends of their ranges."""
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "beam": {
            "beam": st.sampled_from([1, 2, 5, 20]),
            "penalty": st.sampled_from(["wu", "power"]),
            "length_penalty": st.sampled_from([0.0, 0.6, 1.0, 10.0]),
        },
        "greedy": {},
        "sample": {
            "n_best": st.sampled_from([1, 3, 30]),
            "temperature": st.sampled_from([0.0, 5e-324, 1e-30, 1e-3, 1.0, 1000.0]),
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
def test_any_search_options_give_finite_scores_or_are_refused(options: dict[str, Any], most: bool) -> None:
    pairs, model = make_pairs(), tiny_model(VARIANTS[0])
    if options.get("min_length", 0) > options.get("max_length", 256):
        del options["min_length"]
    if most and options["method"] == "beam":
        options["n_best"] = options.get("beam", 4)
    config = SearchConfig(**options)
    limits = limits_for(config, pairs.mask.sum(1), torch.zeros(3, dtype=torch.long))
    with torch.inference_mode():
        state = model.start(pairs.source, pairs.mask, room=int(limits.max()) * config.rows)
        asked = Group(state, limits, [0, 1, 2**62], [[]] * 3)
        found = search_group(step_function(model), asked, config, start=GO, end=STOP)
    for hypotheses, limit in zip(found, limits.tolist(), strict=True):
        assert 1 <= len(hypotheses) <= config.n_best
        assert len(hypotheses) == config.n_best or config.method == "beam"
        assert all(math.isfinite(one.score) and math.isfinite(one.log_probability) for one in hypotheses)
        assert all(len(one.tokens) < limit for one in hypotheses)


def test_a_penalty_that_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="divides the score of 5001 tokens by"):
        find(group(random_tables(1, 3, 2, seed=1), [5001]), beam=2, penalty="power", length_penalty=10.0)


@pytest.mark.parametrize("options", [{"beam": 10_000}, {"method": "sample", "n_best": 10_000}], ids=str)
def test_a_beam_that_no_memory_holds_is_refused(options: dict[str, Any]) -> None:
    pairs, model, config = make_pairs(), tiny_model(VARIANTS[0]), SearchConfig(**options)
    with torch.inference_mode(), pytest.raises(ConfigError, match=r"of 10000 needs 2\.8 GiB .* expected at most 2 GiB"):
        state = model.start(pairs.source[:1], None, room=30 * config.rows)
        asked = Group(state, torch.tensor([30]), [0], [[]])
        search_group(step_function(model), asked, config, start=GO, end=STOP)
