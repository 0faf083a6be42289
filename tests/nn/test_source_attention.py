"""Coverage penalty: the formula, and its effect on a model that tends to stop too early."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from heedful.inspection.coverage import LEAST, coverage
from tiny import refused
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.decoder_state import State, Step
from heedful.nn.hooks import HookPoint
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

LINES = ["a b c d", "b a", "c", "d d a"]
STOPS = 0.6  # probability of the end token at every step


class EarlyStopper(nn.Module):
    """Copies the source token by token, attending to each, but may stop after any of them."""

    max_length = None

    def __init__(self, vocab: int, end: int) -> None:
        super().__init__()
        self.vocab, self.end = vocab, end
        self.cross_attention = nn.ModuleDict({"weights": HookPoint()})

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        return State({"source": source}, torch.zeros(len(source), dtype=torch.long))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        source = state.memory["source"]
        source = source.repeat_interleave(len(tokens) // len(source), 0)  # (rows, source time)
        last = (source == self.end).long().argmax(1, keepdim=True)
        at = torch.minimum(state.row_state[:, None] + torch.arange(tokens.shape[1]), last)  # (rows, time)
        weights: Tensor = self.cross_attention["weights"](nn.functional.one_hot(at, source.shape[1]).float()[:, None])
        copies = nn.functional.one_hot(source.gather(1, weights[:, 0].argmax(-1)), self.vocab)  # (rows, time, vocab)
        ends = nn.functional.one_hot(torch.tensor(self.end), self.vocab)
        return Step(
            (copies * (1 - STOPS) + ends * STOPS).log(), state._replace(row_state=state.row_state + tokens.shape[1]), {}
        )

    def project(self, hidden: Tensor) -> Tensor:
        return hidden


@pytest.fixture(scope="module")
def early_stopper() -> System:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), ["a b c d"])
    return System([EarlyStopper(len(tokenizer), tokenizer.specials.end)], tokenizer, tokenizer, torch.device("cpu"))


def test_coverage_equals_the_formula() -> None:
    weights = torch.tensor([[[0.7, 0.3, 0.0], [0.5, 0.1, 0.0], [0.0, 0.0, 1.0]]])  # (1, target, source)
    two, three = torch.tensor([[True, True, False]]), torch.tensor([[True, True, True]])
    assert_close(coverage(weights, two), torch.tensor([math.log(0.4) + math.log(LEAST)]))
    assert_close(coverage(weights, three), torch.tensor([math.log(0.4)]))


def dropped(system: System, **options: Any) -> int:
    config = SearchConfig(beam=6, length_penalty=0.2, **options)
    outputs = [one.text.split() for one in translate(system, LINES, config)]
    return sum(len(line.split()) - len(words) for line, words in zip(LINES, outputs, strict=True))


def test_a_coverage_penalty_drops_fewer_words(early_stopper: System) -> None:
    assert dropped(early_stopper) == sum(len(line.split()) for line in LINES)  # it generates nothing
    assert dropped(early_stopper, coverage=0.2) == len(LINES)  # of each line the last word, which it attends to as it stops


def test_the_score_is_the_length_normalized_score_plus_beta_times_coverage(early_stopper: System) -> None:
    (one,) = translate(early_stopper, ["a b c"], SearchConfig(beam=4, n_best=3, coverage=0.05, length_penalty=0.2))
    scores = {}
    for words in range(4):  # the end token is predicted while attending to the next word
        log_probability = words * math.log(1 - STOPS) + (math.log(STOPS) if words < 3 else 0.0)
        uncovered = max(3 - words - 1, 0)
        scores[words] = log_probability / ((6 + words) / 6) ** 0.2 + 0.05 * uncovered * math.log(LEAST)
    best = sorted(scores, key=lambda words: -scores[words])[:3]
    assert [len(candidate.tokens) for candidate in one.candidates] == best
    assert [candidate.score for candidate in one.candidates] == pytest.approx([scores[words] for words in best], abs=1e-5)


def test_without_a_choice_it_is_refused() -> None:
    assert refused(SearchConfig, beam=1, coverage=0.2) == {"coverage": "given 0.2, but a beam of 1 has one hypothesis"}
    assert "no effect because search.method is 'greedy'" in refused(SearchConfig, method="greedy", coverage=0.2)["coverage"]
