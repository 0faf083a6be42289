"""The claims of language models and layers: their toys are what they say, and the n-gram is a distribution."""

from __future__ import annotations

import math
import random

import pytest
import torch
from claims import answering, masking
from claims.layers import DELAY, SYMBOLS, TIME, Deep, Stack, echoed, field
from claims.summarizing import END, FIRST, LONGEST, PAD, TAG, TAGS, tagged
from claims.texts import (
    ANY,
    KINDS,
    QUESTION,
    TEMPLATES,
    NGram,
    known_words,
    labeled,
    lexicon,
    questions,
    sentence,
    words_of,
)

from heedful.nn.sequence_layers import LayerSize

pytestmark = pytest.mark.benchmark

SIZE = LayerSize(dim=16, heads=2, causal=True)
LINES = "the cat sat on the mat\nthat is the hat\n"


def test_a_word_has_one_kind_and_so_many_are_told() -> None:
    known = lexicon(1, words=40, stated=0.5)
    words = [word for one in known.words.values() for word in one]
    assert len(words) == len(set(words)) == 40 * len(KINDS)
    assert [sum(word in known.stated for word in known.words[kind]) for kind in KINDS] == [20] * len(KINDS)


def test_a_word_of_a_class_stands_where_only_its_class_can() -> None:
    known, draw = lexicon(2, stated=0.5), random.Random(0)
    kind_of = {word: kind for kind, words in known.words.items() for word in words}
    seen = {sentence(known, draw) for _ in range(2000)}
    common = {" ".join("_" if word in kind_of else word for word in one.split()): one.split() for one in seen}
    for kind, templates in TEMPLATES.items():
        for template in templates:
            words = common[template.replace(f"{{{kind}}}", "_")]
            assert {kind_of[word] for word in words if word in kind_of} == {kind}


def test_the_text_says_the_kind_of_told_words_only() -> None:
    known, draw = lexicon(3, stated=0.5), random.Random(0)
    start = QUESTION.split("{thing}")[1]
    said = [one for one in (sentence(known, draw) for _ in range(2000)) if start in one]
    assert len(said) > 100
    for one in said:
        word, kind = one.split()[1], one.split()[-1]
        assert word in known.stated and word in known.words[kind]
    untold, free = lexicon(3), random.Random(0)
    assert not any(start in sentence(untold, free) for _ in range(500))


def test_labels_are_the_kinds_of_the_words_and_no_sentence_comes_twice() -> None:
    known = lexicon(4)
    rows = labeled(known, 300, random.Random(0))
    assert len({text for _, text in rows}) == 300
    assert all(text.split()[-1] in known.words[kind] for kind, text in rows)
    assert {text.split()[0] for _, text in rows} == {template.split()[0] for template in ANY}


def test_questions_are_of_words_whose_kind_was_not_told() -> None:
    known = lexicon(5, stated=0.5)
    asked = questions(known)
    assert len(asked) == 20 * len(KINDS)
    assert all(prompt.split()[1] in known.words[kind] and prompt.split()[1] not in known.stated for kind, prompt in asked)


@pytest.mark.parametrize("history", ["", "t", "th", "e ", "zz", "zt", "cat th"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_probabilities_of_the_n_gram_add_up_to_one(history: str, order: int) -> None:
    model = NGram(LINES, order)
    total = math.fsum(model.probability(one, history) for one in (*model.alphabet, "never seen"))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_witten_bell_by_hand() -> None:
    """abab: after a always b. Of the alphabet a, b and one more, p(b) = (2 + 2 / 3) / 6 and p(b | a) = (2 + p(b)) / 3."""
    model = NGram("abab", 1)
    assert model.probability("b", "") == pytest.approx((2 + 2 / 3) / 6)
    assert model.probability("b", "a") == pytest.approx((2 + (2 + 2 / 3) / 6) / 3)


def test_the_bits_of_a_text_are_those_of_its_characters() -> None:
    model, text = NGram(LINES, 2), "the"
    logs = [math.log2(model.probability(one, before)) for one, before in (("t", "\n"), ("h", "\nt"), ("e", "th"))]
    assert model.bits(text) == pytest.approx(-sum(logs) / 3)


def test_words_are_letters_and_apostrophes() -> None:
    assert words_of("What's here?\nROMEO: ay--me!") == ["what's", "here", "romeo", "ay", "me"]
    assert known_words("Ay me, xyz", {"ay", "me"}) == pytest.approx(2 / 3)


@pytest.mark.parametrize("held_out", [True, False])
def test_a_summary_is_what_stands_after_the_tags(held_out: bool) -> None:
    source, target = tagged(50, torch.Generator().manual_seed(1), held_out=held_out)
    assert len(source) == len(target) == 50
    for row, wanted in zip(source.tolist(), target.tolist(), strict=True):
        ended = row.index(END)
        assert [row[at + 1] for at, token in enumerate(row) if token == TAG] == wanted[:-1]
        assert wanted[-1] == END and len(wanted) == TAGS + 1
        assert set(row[ended + 1 :]) <= {PAD} and PAD not in row[:ended] and ended <= LONGEST + TAGS
        assert (sum(token - FIRST for token in row[:ended] if token >= FIRST) % 10 == 0) == held_out


def test_an_echo_is_what_was_said_so_many_steps_before() -> None:
    symbols, wanted = echoed(3, DELAY, random.Random(1))
    assert symbols.shape == (3, TIME) and wanted.shape == (3, TIME - DELAY)
    assert all(wanted[0, at - DELAY] == symbols[0, at - DELAY] for at in range(DELAY, TIME))
    assert wanted[:, 0].tolist() == symbols[:, 0].tolist()


@pytest.mark.parametrize("kind", ["convolution", "dilated"])
@pytest.mark.parametrize(("kernel", "layers"), [(3, 2), (5, 3), (2, 4)])
def test_a_stack_sees_as_far_as_its_field_and_no_farther(kind: str, kernel: int, layers: int) -> None:
    torch.manual_seed(1)
    sizes = [SIZE.model_copy(update={"kernel": kernel, "dilation": 2**at}) for at in range(layers)]
    seen = field(sizes, dilated=kind == "dilated")
    model, symbols = Stack(kind, sizes).double(), torch.randint(SYMBOLS, (1, TIME))
    last = TIME - 1

    def moved(back: int) -> bool:
        other = symbols.clone()
        other[0, last - back] = (other[0, last - back] + 1) % SYMBOLS
        return bool((model(other)[0, last] != model(symbols)[0, last]).any())

    assert moved(seen - 1) and not moved(seen)


@pytest.mark.parametrize("join", ["highway", "residual", "plain"])
def test_a_deep_network_gives_a_logit_for_each_class(join: str) -> None:
    out = Deep(join, copies=2, layers=100)(torch.randn(4, 16))
    assert out.shape == (2, 4, 10) and out.isfinite().all()
    assert torch.allclose(out[0], out[1], atol=1e-5)


def test_closed_gates_carry_everything() -> None:
    model = Deep("highway", copies=1, layers=5)
    with torch.no_grad():
        model.gates.zero_()
        model.gate_biases.fill_(-100.0)
    x = torch.randn(4, 16)
    expected = (x @ model.first[0] + model.first_bias[0]) @ model.last[0] + model.last_bias[0]
    assert torch.allclose(model(x)[0], expected, atol=1e-6)


def test_a_document_of_the_masked_claim_has_one_topic() -> None:
    draw = random.Random(3)
    documents = [masking.document(draw) for _ in range(300)]
    topics = [[word.split("w")[0] for word in " ".join(one).split() if "w" in word and word[0] == "t"] for one in documents]
    assert all(len(words) == 6 and len(set(words)) == 1 for words in topics) and all(one[2] == "" for one in documents)
    assert len({words[0] for words in topics}) == masking.TOPICS


def test_the_answer_of_the_span_claim_is_in_its_text() -> None:
    for seed in range(20):
        question, context, answer, start = answering.example(random.Random(seed))
        assert context[start:].startswith(f"{answer}.")
        assert context[:start].endswith(f"the {question.removeprefix('where is the ').removesuffix('?')} is ")
