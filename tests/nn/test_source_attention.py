"""Attention weights on the source of one teacher-forced pass; the coverage penalty: its formula, and its effect on a model that
tends to stop too early."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import FAMILIES, Pairs, Variant, config_problems, source_maps, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.decoder_state import State, Step
from heedful.nn.hooks import HookPoint, record
from heedful.nn.model import CROSS, WITHIN, AttentionLayer, SequenceModel
from heedful.nn.source_attention import MIN_COVERAGE, coverage, mean_source_weights, source_weights
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer


@pytest.fixture
def model() -> SequenceModel:
    return tiny_model(Variant(FAMILIES[0], ()))


def test_source_weights_are_the_recorded_weights_of_each_layer(model: SequenceModel, pairs: Pairs) -> None:
    source, target = pairs.source[:1], pairs.target[:1]
    maps = source_maps(model, source, target)
    with record(model, "*.cross_attention.weights") as recorded:
        model.forced(source, None, target)
    assert [tuple(weights.shape) for weights in maps] == [(2, 7, 6), (2, 7, 6)]
    for weights, expected in zip(maps, recorded.values(), strict=True):
        assert_close(weights, expected[0])
        assert_close(weights.sum(-1), torch.ones(2, 7))


def test_source_weights_of_some_layers_are_those_of_all_layers(model: SequenceModel, pairs: Pairs) -> None:
    (second,) = source_weights(model, pairs.source, pairs.mask, pairs.target, layers=[1]).items()
    every = source_weights(model, pairs.source, pairs.mask, pairs.target)
    assert list(every) == [0, 1] and second[0] == 1
    assert torch.equal(second[1], every[1])


def test_with_source_and_target_in_one_sequence_weights_are_the_source_columns(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", (("position", "rotary"), ("norm", "pre"), ("reach", "full"))))
    source, target = pairs.source[:1], pairs.target[:1]
    maps = source_maps(model, source, target)
    joined = torch.cat((source, target), dim=1)
    with torch.inference_mode(), record(model, "layers.*.self_attention.weights") as recorded:
        model.step(joined, model.start(joined[:, :0], None, room=0))
    assert len(maps) == 2
    for weights, expected in zip(maps, recorded.values(), strict=True):
        assert_close(weights, expected[0, :, 6:, :6])


def test_mean_source_weights_averages_heads_and_layers(model: SequenceModel, pairs: Pairs) -> None:
    pair = pairs.source[:1], pairs.target[:1]
    first, second = source_maps(model, *pair)
    assert_close(mean_source_weights(model, *pair, layer=1), second.mean(0))
    assert_close(mean_source_weights(model, *pair), torch.cat((first, second)).mean(0))


@pytest.mark.parametrize("training", [True, False])
def test_recording_leaves_the_model_unchanged(training: bool, pairs: Pairs) -> None:
    model = tiny_model(Variant(FAMILIES[0], (("norm", "pre"),))).train(training)
    first, again = (source_maps(model, pairs.source[:1], pairs.target[:1]) for _ in range(2))
    assert model.training is training
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))  # without dropout


def test_batched_weights_equal_those_of_single_pairs(plain: SequenceModel, pairs: Pairs) -> None:
    try:
        batched = source_weights(plain, pairs.source, pairs.mask, pairs.target)
    except ConfigError:
        assert not any(attention.kind in (CROSS, WITHIN) for attention in plain.attentions())
        return
    assert batched
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        alone = source_maps(plain, pairs.source[row : row + 1, :length], pairs.target[row : row + 1])
        for weights, expected in zip(batched.values(), alone, strict=True):
            assert_close(weights[row, ..., :length], expected, atol=1e-5, rtol=1e-4)
            assert not weights[row, ..., length:].any()


def test_a_model_without_attention_to_the_source_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="needs a model that attends to its source, and this one does not"):
        source_weights(SequenceModel(), torch.zeros(1, 1), None, torch.zeros(1, 1))


LINES = ["a b c d", "b a", "c", "d d a"]
STOPS = 0.6  # probability of the end token at every step


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = HookPoint()


class EarlyStopper(SequenceModel):
    """Copies the source token by token, attending to each, but may stop after any of them."""

    def __init__(self, vocab: int, end: int) -> None:
        super().__init__()
        self.vocab, self.end = vocab, end
        self.cross_attention = Attention()

    def attentions(self) -> list[AttentionLayer]:
        return list(self.attention(CROSS, 0, self.cross_attention))

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        return State({"source": source}, torch.zeros(len(source), dtype=torch.long))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        source = state.memory["source"]
        source = source.repeat_interleave(len(tokens) // len(source), 0)  # (rows, source time)
        last = (source == self.end).long().argmax(1, keepdim=True)
        at = torch.minimum(state.row_state[:, None] + torch.arange(tokens.shape[1]), last)  # (rows, time)
        weights: Tensor = self.cross_attention.weights(nn.functional.one_hot(at, source.shape[1]).float()[:, None])
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
    assert_close(coverage(weights, two), torch.tensor([math.log(0.4) + math.log(MIN_COVERAGE)]))
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
        scores[words] = log_probability / ((6 + words) / 6) ** 0.2 + 0.05 * uncovered * math.log(MIN_COVERAGE)
    best = sorted(scores, key=lambda words: -scores[words])[:3]
    assert [len(candidate.tokens) for candidate in one.candidates] == best
    assert [candidate.score for candidate in one.candidates] == pytest.approx([scores[words] for words in best], abs=1e-5)


def test_without_a_choice_it_is_refused() -> None:
    assert config_problems(SearchConfig, beam=1, coverage=0.2) == {"coverage": "given 0.2, but a beam of 1 has one hypothesis"}
    assert (
        "no effect because search.method is 'greedy'"
        in config_problems(SearchConfig, method="greedy", coverage=0.2)["coverage"]
    )
