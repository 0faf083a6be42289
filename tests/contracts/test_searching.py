"""Search over every family: a reported score is the score of the same words read at once, and company does not matter."""

from __future__ import annotations

import random

import pytest
import torch
from tiny import END, PAD, START, WORDS, Pairs, Speaker, forced_log_probability
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.rows import State
from heedful.search import Hypothesis, Query, beam_search, ensemble, greedy, predictor, sample
from heedful.search.hypothesis import wu
from heedful.search.predict import at_least, counting

LIMITS = torch.tensor([8, 6, 7])
Method = str


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def query(model: Speaker, pairs: Pairs) -> Query:
    """At least three words, so that there is something to compare."""
    state = counting(model.start(pairs.source, pairs.mask, room=8))
    return Query(at_least(predictor(model), 3, END), state, START, END, LIMITS, [0, 1, 2])


def found(method: Method, asked: Query) -> list[list[Hypothesis]]:
    if method == "beam":
        return beam_search(asked, beam=4, penalty=wu(0.6), n_best=3)
    if method == "greedy":
        return [[hypothesis] for hypothesis in greedy(asked)]
    return [[hypothesis] for hypothesis in sample(asked, temperature=1.3, top_k=6, top_p=0.9, seed=5)]


def test_beam_of_one_equals_greedy(plain: Speaker, pairs: Pairs) -> None:
    narrow = beam_search(query(plain, pairs), beam=1, penalty=wu(0.6))
    straight = greedy(query(plain, pairs))
    assert [best.tokens for (best,) in narrow] == [hypothesis.tokens for hypothesis in straight]
    assert [best.log_probability for (best,) in narrow] == pytest.approx([h.log_probability for h in straight], abs=1e-5)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_reported_score_is_that_of_the_same_words_read_at_once(plain: Speaker, pairs: Pairs, method: Method) -> None:
    lengths = pairs.mask.sum(-1).tolist()
    checked = 0
    for source, hypotheses in enumerate(found(method, query(plain, pairs))):
        for tokens, _, log_probability in hypotheses:
            alone = pairs.source[source : source + 1, : lengths[source]]
            assert log_probability == pytest.approx(forced_log_probability(plain, alone, tokens), abs=1e-4)
            checked += len(tokens) + 1
    assert checked >= 3 * 4


def test_an_ensemble_of_a_model_with_itself_is_the_model(plain: Speaker, pairs: Pairs) -> None:
    one = query(plain, pairs)
    states = tuple(query(plain, pairs).states for _ in range(2))
    two = one._replace(predict=ensemble([one.predict, one.predict]), states=states)
    for alone, together in zip(found("beam", one), found("beam", two), strict=True):
        assert [h.tokens for h in together] == [h.tokens for h in alone]
        assert_close([h.score for h in together], [h.score for h in alone], atol=1e-5, rtol=0)


def batched(model: Speaker, sources: list[Tensor], names: list[int], padding: int) -> Query:
    longest = max(map(len, sources)) + padding
    source = torch.stack([torch.nn.functional.pad(words, (0, longest - len(words)), value=PAD) for words in sources])
    mask = torch.arange(longest) < torch.tensor([len(words) for words in sources])[:, None]
    limits = torch.tensor([len(words) + 4 for words in sources])
    state = counting(model.start(source, mask, room=int(limits.max())))
    return Query(at_least(predictor(model), 3, END), state, START, END, limits, names)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_neither_company_nor_padding_changes_a_translation(plain: Speaker, method: Method) -> None:
    """Unless two candidates tie within 1e-4."""
    draws = random.Random(2)
    sources = [torch.tensor(draws.choices(WORDS, k=draws.randint(1, 6))) for _ in range(5)]
    alone = [found(method, batched(plain, [words], [name], padding=0))[0][0] for name, words in enumerate(sources)]
    assert len({tuple(hypothesis.tokens) for hypothesis in alone}) > 1
    ties = 0
    for padding in (0, 1, 5):
        company = draws.sample(range(5), k=5)
        answers = found(method, batched(plain, [sources[name] for name in company], company, padding))
        for name, (best, *_) in zip(company, answers, strict=True):
            assert best.score == pytest.approx(alone[name].score, abs=1e-4)
            ties += best.tokens != alone[name].tokens
    assert ties <= 1


def test_a_state_is_searched_from_wherever_it_stands(plain: Speaker, pairs: Pairs) -> None:
    """Searching on after a prompt is searching for the rest of what follows the prompt."""
    state: State = plain.step(pairs.target[:, :3], plain.start(pairs.source, pairs.mask, room=12)).state
    asked = query(plain, pairs)._replace(states=counting(state))
    lengths = pairs.mask.sum(-1).tolist()
    for source, hypothesis in enumerate(greedy(asked)):
        alone = plain.start(pairs.source[source : source + 1, : lengths[source]], None, room=0)
        words = torch.tensor([[*pairs.target[source, :3].tolist(), START, *hypothesis.tokens]])
        scores = plain.project(plain.step(words, alone).hidden)[0, 3:].log_softmax(-1)
        wanted = torch.tensor([*hypothesis.tokens, END])[:, None]
        assert hypothesis.log_probability == pytest.approx(float(scores.gather(-1, wanted).sum()), abs=1e-4)
