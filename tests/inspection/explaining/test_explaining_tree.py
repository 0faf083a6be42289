"""The tree of a search: it finds what the search finds, and says rightly what became of everything else."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from tiny import END, SPEAKING, START, VOCAB, Pairs, Variant, tiny_model
from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import forced
from heedful.inspection.explaining.decoding import END as LAST
from heedful.inspection.explaining.decoding import ITALIAN, LIMIT, say, search
from heedful.inspection.explaining.decoding import START as FIRST
from heedful.inspection.explaining.tree import Say, grow, hypothesis, tokens_of
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

CONFIGS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"beam": 1},
    {"beam": 4, "n_best": 4},
    {"beam": 4, "n_best": 1, "length_penalty": 0.0},
    {"beam": 3, "n_best": 2, "penalty": "power", "length_penalty": 1.0},
    {"beam": 3, "n_best": 3, "min_length": 3},
]


def says(model: Any, source: Tensor) -> Say:
    def said(beginnings: list[list[int]]) -> Tensor:
        tokens = torch.tensor(beginnings)
        state = model.start(source.expand(len(tokens), -1), None, room=0)
        logs: Tensor = model.project(model.step(tokens, state).hidden[:, -1]).log_softmax(-1)
        return logs

    return said


@pytest.mark.parametrize("family", SPEAKING)
@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_the_tree_finds_what_the_search_finds(family: str, options: dict[str, Any], pairs: Pairs) -> None:
    model, config = tiny_model(Variant(family, ())), SearchConfig(**options)
    for source, limit in ((pairs.source[:1], 7), (pairs.source[1:2, :3], 4)):
        with forced(model):
            group = SourceBatch(model.start(source, None, room=limit * config.rows), torch.tensor([limit]), [0], [[]])
            (real,) = search_batch(step_function(model), group, config, start=START, end=END)
            nodes, best = grow(says(model, source), config, limit, start=START, end=END)
        found = [hypothesis(nodes, at) for at in best]
        assert found and [one.tokens for one in found] == [one.tokens for one in real]
        for one, other in zip(found, real, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)


def test_every_fate_is_what_it_says() -> None:
    config = SearchConfig(beam=2, n_best=2)
    nodes, best = grow(say, config, LIMIT, start=FIRST, end=LAST)
    ends = {i for i, node in enumerate(nodes) if node.fate == "ended"}
    assert set(best) <= ends and all(nodes[i].token == LAST for i in ends)
    for length in range(1, LIMIT + 1):
        step = [node for node in nodes if node.length == length]
        kept = [node for node in step if node.fate in ("kept", "ended")]
        dropped = [node for node in step if node.fate == "rank"]
        assert len(kept) <= 2
        assert all(one.total >= other.total for one, other in itertools.product(kept, dropped))
    assert all(nodes[node.parent].fate == "kept" for node in nodes[1:])
    too_long = [node for node in nodes if node.fate == "length"]
    assert too_long and all(node.length == LIMIT and node.token != LAST for node in too_long)


def test_a_total_is_the_sum_and_a_score_its_share() -> None:
    config = SearchConfig(beam=2, n_best=2)
    nodes, _ = grow(say, config, LIMIT, start=FIRST, end=LAST)
    for at, node in enumerate(nodes[1:], start=1):
        path = tokens_of(nodes, at)
        steps = [float(say([path[:cut]])[0, path[cut]]) for cut in range(1, len(path))]
        assert node.total == pytest.approx(sum(steps)) and node.probability == pytest.approx(math.exp(steps[-1]))
        assert node.score == pytest.approx(node.total / ((5 + node.length) / 6) ** 0.6)


def test_a_rank_counts_all_continuations_of_the_step() -> None:
    nodes, _ = grow(say, SearchConfig(beam=2, n_best=2), LIMIT, start=FIRST, end=LAST)
    for length in range(1, LIMIT):
        living = [i for i, node in enumerate(nodes) if node.length == length - 1 and node.fate == "kept"]
        totals = [nodes[i].total + float(log) for i in living for log in say([tokens_of(nodes, i)])[0]]
        step = [node for node in nodes if node.length == length]
        assert step and min(node.rank for node in step) == 1
        assert all(node.rank == 1 + sum(total > node.total + 1e-6 for total in totals) for node in step)


def test_a_worse_beginning_goes_on_while_its_length_may_still_save_it() -> None:
    """At once the end has 0.4 and a word 0.35; later tokens are likelier, so the mean rises with every one."""

    def patient(beginnings: list[list[int]]) -> Tensor:
        rows = [[0.0, 0.4, 0.35, 0.25] if len(one) == 1 else [0.0, 0.3, 0.7, 0.0] for one in beginnings]
        return torch.tensor(rows).log()

    nodes, best = grow(patient, SearchConfig(beam=2, penalty="power", length_penalty=1.0), 6, start=0, end=1)
    assert hypothesis(nodes, best[0]).tokens == [2, 2, 2, 2, 2]


def test_a_beam_as_wide_as_all_sentences_ranks_them_as_counting_does() -> None:
    config = SearchConfig(beam=200, n_best=5, length_penalty=0.0)
    nodes, best = grow(say, config, LIMIT, start=FIRST, end=LAST)
    everything: list[tuple[float, tuple[int, ...]]] = []
    for length in range(LIMIT):
        for words in itertools.product(range(2, len(ITALIAN)), repeat=length):
            path = [FIRST, *words, LAST]
            total = sum(float(say([path[:cut]])[0, path[cut]]) for cut in range(1, len(path)))
            everything.append((total, words))
    expected = sorted(everything, reverse=True)[:5]
    assert [nodes[at].total for at in best] == pytest.approx([total for total, _ in expected])


def test_the_worked_search_finds_more_with_two_beams_than_with_one() -> None:
    greedy, wide, _ = search().stages
    assert greedy.tree is not None and wide.tree is not None
    one, two = (stage.tree.nodes[stage.tree.best[0]] for stage in (greedy, wide) if stage.tree is not None)
    assert math.exp(one.total) == pytest.approx(0.55 * 0.5 * 0.6 * 0.7 * 0.9)
    assert math.exp(two.total) == pytest.approx(0.45 * 0.9 * 0.95 * 0.9)
    for row in [say([[FIRST, *words]]) for words in itertools.product(range(2, 6), repeat=2)]:
        assert float(row.exp().sum()) == pytest.approx(1)  # what is written down are probabilities


def test_beginnings_that_can_no_longer_win_are_overtaken() -> None:
    def sure(beginnings: list[list[int]]) -> Tensor:
        return torch.tensor([[0.01, 0.9, 0.05, 0.04]] * len(beginnings)).log()

    nodes, best = grow(sure, SearchConfig(beam=2, length_penalty=0.0), 9, start=0, end=1)
    assert [node.fate for node in nodes if node.length == 1][:2] == ["ended", "overtaken"]
    assert max(node.length for node in nodes) == 1 and hypothesis(nodes, best[0]).tokens == []


@pytest.mark.parametrize("options", [{"method": "sample"}, {"no_repeat": 2}])
def test_what_has_no_tree_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no tree to show"):
        grow(lambda _: torch.zeros(1, VOCAB), SearchConfig(**options), 5, start=START, end=END)
