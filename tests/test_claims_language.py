"""The claims about language models and layers: synthetic data, and the n-gram model as a distribution."""

from __future__ import annotations

import math
import random

import pytest
import torch
from claims.layers import DELAY, SYMBOLS, TIME, Deep, Stack, echoed, field
from claims.summarizing import END, FIRST, LONGEST, PAD, TAG, TAGS, tagged
from claims.texts import (
    ANY,
    KINDS,
    QUESTION,
    SAID,
    Counted,
    known_words,
    labeled,
    lexicon,
    questions,
    sentence,
    words_of,
)

from heedful.nn.sequence_layers import LayerSize

SIZE = LayerSize(dim=16, heads=2, causal=True)
LINES = "the cat sat on the mat\nthat is the hat\n"


def test_a_word_has_one_kind_and_half_of_the_kinds_are_stated() -> None:
    known = lexicon(1, words=40, told=0.5)
    words = [word for words_of_kind in known.words.values() for word in words_of_kind]
    assert len(words) == len(set(words)) == 40 * len(KINDS)
    assert [sum(word in known.told for word in known.words[kind]) for kind in KINDS] == [20] * len(KINDS)


def test_class_specific_templates_contain_words_of_their_class() -> None:
    known, draw = lexicon(2, told=0.5), random.Random(0)
    kind_of = {word: kind for kind, words in known.words.items() for word in words}
    sentences = {sentence(known, draw) for _ in range(2000)}
    common = {" ".join("_" if word in kind_of else word for word in text.split()): text.split() for text in sentences}
    for kind, templates in SAID.items():
        for template in templates:
            words = common[template.replace(f"{{{kind}}}", "_")]
            assert {kind_of[word] for word in words if word in kind_of} == {kind}


def test_the_text_states_the_kind_of_selected_words_only() -> None:
    known, draw = lexicon(3, told=0.5), random.Random(0)
    start = QUESTION.split("{thing}")[1]
    statements = [text for text in (sentence(known, draw) for _ in range(2000)) if start in text]
    assert len(statements) > 100
    for text in statements:
        word, kind = text.split()[1], text.split()[-1]
        assert word in known.told and word in known.words[kind]
    untold, free = lexicon(3), random.Random(0)
    assert not any(start in sentence(untold, free) for _ in range(500))


def test_labels_are_the_kinds_of_the_words_and_sentences_are_distinct() -> None:
    known = lexicon(4)
    rows = labeled(known, 300, random.Random(0))
    assert len({text for _, text in rows}) == 300
    assert all(text.split()[-1] in known.words[kind] for kind, text in rows)
    assert {text.split()[0] for _, text in rows} == {template.split()[0] for template in ANY}


def test_questions_are_about_words_whose_kind_was_not_stated() -> None:
    known = lexicon(5, told=0.5)
    prompts = questions(known)
    assert len(prompts) == 20 * len(KINDS)
    assert all(prompt.split()[1] in known.words[kind] and prompt.split()[1] not in known.told for kind, prompt in prompts)


@pytest.mark.parametrize("history", ["", "t", "th", "e ", "zz", "zt", "cat th"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_probabilities_of_the_n_gram_add_up_to_one(history: str, order: int) -> None:
    model = Counted(LINES, order)
    total = math.fsum(model.probability(character, history) for character in (*model.alphabet, "never seen"))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_witten_bell_by_hand() -> None:
    """abab: after a always b. Of the alphabet a, b and one more, p(b) = (2 + 2 / 3) / 6 and p(b | a) = (2 + p(b)) / 3."""
    model = Counted("abab", 1)
    assert model.probability("b", "") == pytest.approx((2 + 2 / 3) / 6)
    assert model.probability("b", "a") == pytest.approx((2 + (2 + 2 / 3) / 6) / 3)


def test_the_bits_of_a_text_are_the_mean_over_its_characters() -> None:
    model, text = Counted(LINES, 2), "the"
    logs = [math.log2(model.probability(character, before)) for character, before in (("t", "\n"), ("h", "\nt"), ("e", "th"))]
    assert model.bits(text) == pytest.approx(-sum(logs) / 3)


def test_words_are_letters_and_apostrophes() -> None:
    assert words_of("What's here?\nROMEO: ay--me!") == ["what's", "here", "romeo", "ay", "me"]
    assert known_words("Ay me, xyz", {"ay", "me"}) == pytest.approx(2 / 3)


@pytest.mark.parametrize("held_out", [True, False])
def test_a_summary_is_the_tokens_after_the_tags(held_out: bool) -> None:
    source, target = tagged(50, torch.Generator().manual_seed(1), held_out=held_out)
    assert len(source) == len(target) == 50
    for row, summary in zip(source.tolist(), target.tolist(), strict=True):
        ended = row.index(END)
        assert [row[at + 1] for at, token in enumerate(row) if token == TAG] == summary[:-1]
        assert summary[-1] == END and len(summary) == TAGS + 1
        assert set(row[ended + 1 :]) <= {PAD} and PAD not in row[:ended] and ended <= LONGEST + TAGS
        assert (sum(token - FIRST for token in row[:ended] if token >= FIRST) % 10 == 0) == held_out


def test_an_echo_is_the_symbol_a_number_of_steps_before() -> None:
    symbols, target = echoed(3, DELAY, torch.Generator().manual_seed(1))
    assert symbols.shape == (3, TIME) and target.shape == (3, TIME - DELAY)
    assert all(target[0, at - DELAY] == symbols[0, at - DELAY] for at in range(DELAY, TIME))
    assert target[:, 0].tolist() == symbols[:, 0].tolist()


@pytest.mark.parametrize("kind", ["convolution", "dilated"])
@pytest.mark.parametrize(("kernel", "layers"), [(3, 2), (5, 3), (2, 4)])
def test_the_output_of_a_stack_depends_on_its_receptive_field_only(kind: str, kernel: int, layers: int) -> None:
    torch.manual_seed(1)
    sizes = [SIZE.model_copy(update={"kernel": kernel, "dilation": 2**at}) for at in range(layers)]
    receptive_field = field(sizes, dilated=kind == "dilated")
    model, symbols = Stack(kind, sizes).double(), torch.randint(SYMBOLS, (1, TIME))
    last = TIME - 1

    def changes_output(back: int) -> bool:
        changed = symbols.clone()
        changed[0, last - back] = (changed[0, last - back] + 1) % SYMBOLS
        return bool((model(changed)[0, last] != model(symbols)[0, last]).any())

    assert changes_output(receptive_field - 1) and not changes_output(receptive_field)


@pytest.mark.parametrize("join", ["highway", "residual", "plain"])
def test_a_deep_network_gives_a_logit_for_each_class(join: str) -> None:
    out = Deep(join, layers=50)(torch.randn(4, 16))
    assert out.shape == (4, 10) and out.isfinite().all()


def test_closed_gates_pass_the_input_through() -> None:
    model = Deep("highway", layers=5)
    with torch.no_grad():
        for gate in model.gates:
            gate.weight.zero_()  # type: ignore[operator]
            gate.bias.fill_(-100.0)  # type: ignore[operator]
    x = torch.randn(4, 16)
    assert torch.allclose(model(x), model.last(model.first(x)), atol=1e-6)
