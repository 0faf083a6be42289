"""Search over every family: reported scores equal teacher-forced scores, and batches do not affect results."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
import torch
from tiny import END, PAD, PLAIN, START, WORDS, Pairs, forced_log_probability, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.decoder_state import State
from heedful.nn.model import SequenceModel
from heedful.search import (
    Hypothesis,
    SearchConfig,
    SourceBatch,
    Sources,
    StepFunction,
    ensemble,
    search,
    search_batch,
    step_function,
)

LIMITS = torch.tensor([8, 6, 7])
METHODS: dict[str, dict[str, Any]] = {
    "beam": {"beam": 4, "n_best": 3},
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "temperature": 1.3, "top_k": 6, "top_p": 0.9, "seed": 5},
}


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def group(model: SequenceModel, pairs: Pairs, beam: int = 4) -> SourceBatch:
    return SourceBatch(model.start(pairs.source, pairs.mask, room=8 * beam), LIMITS, [0, 1, 2], [[]] * 3)


def decode(predict: StepFunction, sources: SourceBatch, **options: Any) -> list[list[Hypothesis]]:
    """Search for at least three tokens, so that there is something to compare."""
    return search_batch(predict, sources, SearchConfig(min_length=3, **options), start=START, end=END)


def test_beam_of_one_equals_greedy(searched: SequenceModel, pairs: Pairs) -> None:
    narrow = decode(step_function(searched), group(searched, pairs), beam=1)
    greedy = decode(step_function(searched), group(searched, pairs), method="greedy")
    assert [best.tokens for (best,) in narrow] == [best.tokens for (best,) in greedy]
    assert [best.log_probability for (best,) in narrow] == pytest.approx([h.log_probability for (h,) in greedy], abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_reported_score_equals_the_teacher_forced_score(searched: SequenceModel, pairs: Pairs, method: str) -> None:
    lengths = pairs.mask.sum(-1).tolist()
    checked = 0
    for source, hypotheses in enumerate(decode(step_function(searched), group(searched, pairs), **METHODS[method])):
        for tokens, _, log_probability in hypotheses:
            alone = pairs.source[source : source + 1, : lengths[source]]
            assert log_probability == pytest.approx(forced_log_probability(searched, alone, tokens), abs=1e-4)
            checked += len(tokens) + 1
    assert checked >= 3 * 4


def test_an_ensemble_of_a_model_with_itself_is_the_model(searched: SequenceModel, pairs: Pairs) -> None:
    one, member = group(searched, pairs), step_function(searched)
    two = one._replace(states=tuple(group(searched, pairs).states for _ in range(2)))
    both = decode(ensemble([member, member]), two, **METHODS["beam"])
    for single, ensembled in zip(decode(member, one, **METHODS["beam"]), both, strict=True):
        assert [h.tokens for h in ensembled] == [h.tokens for h in single]
        assert_close([h.score for h in ensembled], [h.score for h in single], atol=1e-5, rtol=0)


def batched(model: SequenceModel, sources: list[Tensor], names: list[int], padding: int = 0, slots: int = 40) -> SourceBatch:
    longest = max(map(len, sources)) + padding
    source = torch.stack([torch.nn.functional.pad(words, (0, longest - len(words)), value=PAD) for words in sources])
    mask = torch.arange(longest) < torch.tensor([len(words) for words in sources])[:, None]
    limits = torch.tensor([len(words) + 4 for words in sources])
    return SourceBatch(model.start(source, mask, room=slots), limits, names, [[]] * len(sources))


def some_sources(count: int) -> list[Tensor]:
    generator = random.Random(2)
    return [torch.tensor(generator.choices(WORDS, k=generator.randint(1, 6))) for _ in range(count)]


@cache
def decode_alone(model: SequenceModel, words: tuple[int, ...], name: int, method: str) -> list[Hypothesis]:
    return decode(step_function(model), batched(model, [torch.tensor(words)], [name]), **METHODS[method])[0]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_neither_batching_nor_padding_changes_a_translation(searched: SequenceModel, method: str) -> None:
    """Unless two candidates tie within 1e-4."""
    generator, sources, predict = random.Random(2), some_sources(5), step_function(searched)
    alone = [decode_alone(searched, tuple(words.tolist()), 0, method)[0] for words in sources]
    assert len({tuple(hypothesis.tokens) for hypothesis in alone}) > 1
    ties = 0
    for padding in (0, 1, 5):
        order = generator.sample(range(5), k=5)
        results = decode(predict, batched(searched, [sources[name] for name in order], order, padding), **METHODS[method])
        for name, (best, *_) in zip(order, results, strict=True):
            assert best.score == pytest.approx(alone[name].score, abs=1e-4)
            ties += best.tokens != alone[name].tokens
    assert ties <= 1


@pytest.mark.parametrize("method", METHODS)
def test_sources_that_wait_for_a_free_place_are_decoded_as_if_alone(searched: SequenceModel, method: str) -> None:
    """Seven sources, three at a time, so that some start while others are being decoded."""
    sources, predict = sorted(some_sources(7), key=len, reverse=True), step_function(searched)
    started = 0

    def next_group(count: int, slots: int) -> SourceBatch | None:
        nonlocal started
        begin, started = started, min(started + count, len(sources))
        return batched(searched, sources[begin:started], list(range(begin, started)), 0, slots) if begin < started else None

    config = SearchConfig(min_length=3, **METHODS[method])
    waiting = Sources(next_group, capacity=3, max_limit=10, exceed_capacity=True)
    results = dict(search(predict, waiting, config, start=START, end=END))
    assert sorted(results) == list(range(7))
    ties = 0
    for name, words in enumerate(sources):
        alone = decode_alone(searched, tuple(words.tolist()), name if method == "sample" else 0, method)
        assert [h.score for h in results[name]] == pytest.approx([h.score for h in alone], abs=1e-4)
        ties += results[name][0].tokens != alone[0].tokens
    assert ties <= 1


def test_search_continues_after_a_prompt(searched: SequenceModel, pairs: Pairs) -> None:
    """Scores equal those of teacher forcing after the same prompt."""
    state: State = searched.step(pairs.target[:, :3], searched.start(pairs.source, pairs.mask, room=3 + 8 * 2)).state
    prompted = group(searched, pairs)._replace(states=state)
    lengths = pairs.mask.sum(-1).tolist()
    for source, (hypothesis, *_) in enumerate(decode(step_function(searched), prompted, beam=2)):
        alone = searched.start(pairs.source[source : source + 1, : lengths[source]], None, room=0)
        words = torch.tensor([[*pairs.target[source, :3].tolist(), START, *hypothesis.tokens]])
        scores = searched.project(searched.step(words, alone).hidden)[0, 3:].log_softmax(-1)
        target = torch.tensor([*hypothesis.tokens, END])[:, None]
        assert hypothesis.log_probability == pytest.approx(float(scores.gather(-1, target).sum()), abs=1e-4)


LARGEST: list[dict[str, Any]] = [
    {"length_penalty": 10.0, "no_repeat": 1000},
    {"length_penalty": 10.0, "penalty": "power"},
    {"method": "sample", "temperature": 1e-6, "seed": 2**63 - 1},
    {"method": "sample", "temperature": 1000.0, "top_k": 10**6},
    {"method": "sample", "top_p": 1e-6},
]


@pytest.mark.parametrize("options", LARGEST, ids=str)
def test_search_supports_extreme_options(pairs: Pairs, options: dict[str, Any]) -> None:
    model = tiny_model(PLAIN[0])
    for hypotheses in decode(step_function(model), group(model, pairs), **options):
        assert hypotheses and all(math.isfinite(hypothesis.score) for hypothesis in hypotheses)
