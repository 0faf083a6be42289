"""The claims of retrieval and skip-thought vectors: their toys are what they say."""

from __future__ import annotations

import random

import pytest
from claims.retrieving import GROUPS, SIZE, TOPICS, document, questions, sentence

pytestmark = pytest.mark.benchmark


def test_paraphrases_share_no_word_with_what_is_stored_and_are_not_trained_on() -> None:
    train, stored, asked = questions()
    assert len(stored) == len({answer for _, answer in stored}) == SIZE**2
    assert len(asked) == 9 * SIZE**2 and not {question for question, _ in asked} & {question for question, _ in train}
    words = {word for question, _ in stored for word in question.split()}
    assert {word for question, _ in asked for word in question.split()} & words == {"to", "the"}
    assert {answer for _, answer in asked} == {answer for _, answer in stored} == {answer for _, answer in train}


def test_sentences_of_a_document_have_one_topic_and_groups_share_no_word() -> None:
    draw = random.Random(1)
    documents = [document(draw) for _ in range(200)]
    assert all(len(one) == 5 and one[-1] == "" for one in documents)
    assert all(len({word.split("g")[0] for line in one for word in line.split()}) == 1 for one in documents)
    first, second = (set(sentence(3, group, draw).split()) for group in (0, 1))
    assert len(first) == len(second) == 3 and not first & second
    assert len({one[0].split()[0].split("g")[0] for one in documents}) == TOPICS and GROUPS > 1
