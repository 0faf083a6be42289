"""HRAN equals the formulas of the paper, one utterance and one step at a time, and its two levels of attention are weights."""

from __future__ import annotations

import pytest
import torch
from tiny import VOCAB, perturb
from torch import Tensor
from torch.testing import assert_close

from heedful.models.hran import Hran, HranConfig, number_utterances
from heedful.nn.hooks import record
from heedful.nn.model import CROSS, UTTERANCE
from heedful.nn.recurrent import Layer

SEPARATOR, PAD = 4, 0
SOURCE = torch.tensor([[5, 6, 4, 7, 8, 9, 4, 10, 2], [9, 4, 5, 2, 0, 0, 0, 0, 0]])  # three utterances, and two
MASK = SOURCE != PAD
TARGET = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 10]])


@pytest.fixture(scope="module", params=["none", "layer"])
def model(request: pytest.FixtureRequest) -> Hran:
    torch.manual_seed(3)
    made = perturb(Hran(HranConfig(dim=8, embedding=6, readout=5, norm=request.param), VOCAB, VOCAB)).eval()
    made.set_turns(SEPARATOR, 4)
    return made


def test_utterances_are_numbered_from_the_last_and_end_with_the_separator() -> None:
    mark = torch.tensor(SEPARATOR)
    assert number_utterances(SOURCE, MASK, mark, 4).tolist() == [[3, 3, 3, 2, 2, 2, 2, 1, 1], [2, 2, 1, 1, 0, 0, 0, 0, 0]]
    assert number_utterances(SOURCE[:1], None, mark, 2).tolist() == [[2, 2, 2, 2, 2, 2, 2, 1, 1]]  # older ones are one
    assert torch.equal(number_utterances(SOURCE, MASK, torch.tensor(-1), 1), MASK.long())


def run_gru(layer: Layer, x: Tensor, state: Tensor) -> Tensor:
    """One step: x (inputs,), state (dim,) -> (dim,)."""
    return layer(x[None, None], (state[None],))[1][0][0]


@torch.inference_mode()
def test_hidden_states_equal_the_formulas_of_the_paper(model: Hran) -> None:
    decoder, recurrence, dim = model.decoder, model.decoder.recurrence, 8
    for row, utterances in ((0, [[5, 6, 4], [7, 8, 9, 4], [10, 2]]), (1, [[9, 4], [5, 2]])):
        words = []  # h_ij
        for tokens in utterances:
            x = model.embedding.embed("source", torch.tensor([tokens]))
            ahead, back = model.encoder.ahead(x, None)[0][0], model.encoder.back(x.flip(1), None)[0][0].flip(0)
            words.append(torch.cat((ahead, back), -1))
        state = decoder.first(words[-1][0, dim:]).tanh()
        hidden = []
        for y in model.embedding.embed("target", TARGET[row : row + 1])[0]:
            level, levels = torch.zeros(dim), []
            for h in reversed(words):
                score = recurrence.word_attention.score
                both = score.query(torch.cat((state, level))) + score.key(h)
                weights = score.value(both.tanh())[:, 0].softmax(0)
                level = run_gru(recurrence.utterance, weights @ h, level)
                levels.append(level)
            score = recurrence.utterance_attention.score
            chosen = score.value((score.query(state) + score.key(torch.stack(levels))).tanh())[:, 0].softmax(0)
            context = chosen @ torch.stack(levels)
            state = run_gru(recurrence.layer, torch.cat((y, context)), state)
            hidden.append(decoder.answer(torch.cat((state, y, context))).view(-1, 2).amax(-1))
        found = model.forced(SOURCE, MASK, TARGET).hidden[row]
        assert_close(found, torch.stack(hidden), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_both_levels_sum_to_one_and_the_second_is_shared_by_the_words_of_each_utterance(model: Hran) -> None:
    words, utterances = model.attentions()
    assert (words.kind, words.heads, utterances.kind) == (UTTERANCE, 4, CROSS)
    with record(model, words.weights, utterances.weights) as recorded:
        model.forced(SOURCE, MASK, TARGET)
    inside, shared = recorded[words.weights], recorded[utterances.weights]  # (2, 4, 4, 9), (2, 1, 4, 9)
    assert_close(inside.sum(-1), torch.tensor([[1.0, 1, 1, 0], [1, 1, 0, 0]])[..., None].expand(2, 4, 4))
    assert_close(shared.sum(-1), torch.ones(2, 1, 4))
    numbers = number_utterances(SOURCE, MASK, torch.tensor(SEPARATOR), 4)
    for number in range(1, 4):
        there = numbers == number
        assert bool((inside[:, number - 1].masked_select(~there[:, None].expand(2, 4, 9)) == 0).all())
        of_utterance = (shared[:, 0] * there[:, None]).sum(-1, keepdim=True)  # (2, 4, 1)
        assert_close(shared[:, 0] * there[:, None], of_utterance * inside[:, number - 1])


@torch.inference_mode()
def test_without_a_separator_the_source_is_one_utterance(model: Hran) -> None:
    torch.manual_seed(3)
    config = HranConfig(dim=8, embedding=6, readout=5, norm=model.config.norm)
    plain = perturb(Hran(config, VOCAB, VOCAB)).eval()
    plain.load_state_dict(model.state_dict())  # the separator is not stored with the weights
    without = SOURCE.masked_fill(SOURCE == SEPARATOR, 5)
    assert_close(plain.forced(without, MASK, TARGET).hidden, model.forced(without, MASK, TARGET).hidden)
    assert not torch.allclose(plain.forced(SOURCE, MASK, TARGET).hidden, model.forced(SOURCE, MASK, TARGET).hidden)
