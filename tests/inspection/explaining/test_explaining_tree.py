"""Search trees: they return the hypotheses of the search, and every status is correct."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from tiny import END, FAMILIES, START, VOCAB, Pairs, Variant, tiny_model
from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.explaining.decoding import END as LAST
from heedful.inspection.explaining.decoding import ITALIAN, LIMIT, next_log_probabilities, search
from heedful.inspection.explaining.decoding import START as FIRST
from heedful.inspection.explaining.tree import NextTokenFn, grow_tree, make_hypothesis, prefix_of
from heedful.nn.model import inference_context
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

CONFIGS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"beam": 1},
    {"beam": 4, "n_best": 4},
    {"beam": 4, "n_best": 1, "length_penalty": 0.0},
    {"beam": 3, "n_best": 2, "penalty": "power", "length_penalty": 1.0},
    {"beam": 3, "n_best": 3, "min_length": 3},
]


def next_token_function(model: Any, source: Tensor) -> NextTokenFn:
    def next_token(prefixes: list[list[int]]) -> Tensor:
        tokens = torch.tensor(prefixes)
        state = model.start(source.expand(len(tokens), -1), None, room=0)
        logs: Tensor = model.project(model.step(tokens, state).hidden[:, -1]).log_softmax(-1)
        return logs

    return next_token


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_the_tree_returns_the_hypotheses_of_the_search(family: str, options: dict[str, Any], pairs: Pairs) -> None:
    model, config = tiny_model(Variant(family, ())), SearchConfig(**options)
    for source, limit in ((pairs.source[:1], 7), (pairs.source[1:2, :3], 4)):
        with inference_context(model):
            group = SourceBatch(model.start(source, None, room=limit * config.rows), torch.tensor([limit]), [0], [[]])
            (real,) = search_batch(step_function(model), group, config, start=START, end=END)
            nodes, best = grow_tree(next_token_function(model, source), config, limit, start=START, end=END)
        hypotheses = [make_hypothesis(nodes, at) for at in best]
        assert hypotheses and [one.tokens for one in hypotheses] == [one.tokens for one in real]
        for one, other in zip(hypotheses, real, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)


def test_every_status_is_correct() -> None:
    config = SearchConfig(beam=2, n_best=2)
    nodes, best = grow_tree(next_log_probabilities, config, LIMIT, start=FIRST, end=LAST)
    ends = {i for i, node in enumerate(nodes) if node.status == "finished"}
    assert set(best) <= ends and all(nodes[i].token == LAST for i in ends)
    for length in range(1, LIMIT + 1):
        step = [node for node in nodes if node.length == length]
        kept = [node for node in step if node.status in ("kept", "finished")]
        dropped = [node for node in step if node.status == "rank"]
        assert len(kept) <= 2
        assert all(one.total >= other.total for one, other in itertools.product(kept, dropped))
    assert all(nodes[node.parent].status == "kept" for node in nodes[1:])
    too_long = [node for node in nodes if node.status == "length"]
    assert too_long and all(node.length == LIMIT and node.token != LAST for node in too_long)


def test_a_total_is_a_sum_and_a_score_is_divided_by_the_length_penalty() -> None:
    config = SearchConfig(beam=2, n_best=2)
    nodes, _ = grow_tree(next_log_probabilities, config, LIMIT, start=FIRST, end=LAST)
    for at, node in enumerate(nodes[1:], start=1):
        path = prefix_of(nodes, at)
        steps = [float(next_log_probabilities([path[:cut]])[0, path[cut]]) for cut in range(1, len(path))]
        assert node.total == pytest.approx(sum(steps)) and node.probability == pytest.approx(math.exp(steps[-1]))
        assert node.score == pytest.approx(node.total / ((5 + node.length) / 6) ** 0.6)


def test_a_rank_counts_all_expansions_of_the_step() -> None:
    nodes, _ = grow_tree(next_log_probabilities, SearchConfig(beam=2, n_best=2), LIMIT, start=FIRST, end=LAST)
    for length in range(1, LIMIT):
        active = [i for i, node in enumerate(nodes) if node.length == length - 1 and node.status == "kept"]
        totals = [nodes[i].total + float(log) for i in active for log in next_log_probabilities([prefix_of(nodes, i)])[0]]
        step = [node for node in nodes if node.length == length]
        assert step and min(node.rank for node in step) == 1
        assert all(node.rank == 1 + sum(total > node.total + 1e-6 for total in totals) for node in step)


def test_a_prefix_is_kept_while_a_longer_continuation_could_still_win() -> None:
    """The end token has probability 0.4 and a word 0.35 at first; later tokens are more probable, so the mean rises."""

    def rising(prefixes: list[list[int]]) -> Tensor:
        rows = [[0.0, 0.4, 0.35, 0.25] if len(one) == 1 else [0.0, 0.3, 0.7, 0.0] for one in prefixes]
        return torch.tensor(rows).log()

    nodes, best = grow_tree(rising, SearchConfig(beam=2, penalty="power", length_penalty=1.0), 6, start=0, end=1)
    assert make_hypothesis(nodes, best[0]).tokens == [2, 2, 2, 2, 2]


def test_a_beam_as_wide_as_the_space_equals_exhaustive_search() -> None:
    config = SearchConfig(beam=200, n_best=5, length_penalty=0.0)
    nodes, best = grow_tree(next_log_probabilities, config, LIMIT, start=FIRST, end=LAST)
    everything: list[tuple[float, tuple[int, ...]]] = []
    for length in range(LIMIT):
        for words in itertools.product(range(2, len(ITALIAN)), repeat=length):
            path = [FIRST, *words, LAST]
            total = sum(float(next_log_probabilities([path[:cut]])[0, path[cut]]) for cut in range(1, len(path)))
            everything.append((total, words))
    expected = sorted(everything, reverse=True)[:5]
    assert [nodes[at].total for at in best] == pytest.approx([total for total, _ in expected])


def test_in_the_example_a_beam_of_two_is_better_than_greedy_search() -> None:
    greedy, wide, _ = search().stages
    assert greedy.tree is not None and wide.tree is not None
    one, two = (stage.tree.nodes[stage.tree.best[0]] for stage in (greedy, wide) if stage.tree is not None)
    assert math.exp(one.total) == pytest.approx(0.55 * 0.5 * 0.6 * 0.7 * 0.9)
    assert math.exp(two.total) == pytest.approx(0.45 * 0.9 * 0.95 * 0.9)
    for row in [next_log_probabilities([[FIRST, *words]]) for words in itertools.product(range(2, 6), repeat=2)]:
        assert float(row.exp().sum()) == pytest.approx(1)  # probabilities


def test_prefixes_that_can_no_longer_win_are_stopped_early() -> None:
    def confident(prefixes: list[list[int]]) -> Tensor:
        return torch.tensor([[0.01, 0.9, 0.05, 0.04]] * len(prefixes)).log()

    nodes, best = grow_tree(confident, SearchConfig(beam=2, length_penalty=0.0), 9, start=0, end=1)
    assert [node.status for node in nodes if node.length == 1][:2] == ["finished", "stopped"]
    assert max(node.length for node in nodes) == 1 and make_hypothesis(nodes, best[0]).tokens == []


@pytest.mark.parametrize("options", [{"method": "sample"}, {"no_repeat": 2}])
def test_a_search_without_a_tree_raises_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no tree to show"):
        grow_tree(lambda _: torch.zeros(1, VOCAB), SearchConfig(**options), 5, start=START, end=END)
