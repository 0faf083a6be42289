"""Tokenizer training: the same text gives the same file, no character is lost, impossible options are errors."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers, trainers

from heedful.errors import ConfigError, DataError
from heedful.text import Specials, TokenizerConfig, train_tokenizer
from heedful.text.library import LibraryCodec
from heedful.text.normalize import normalize, normalizing_steps
from heedful.text.pipelines import BAR, PIPELINES
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Kind
from heedful.text.train import LEARNERS, skip_blank

LINES = [
    "Two men are walking, slowly, to the river.",
    "Zwei Männer gehen langsam zum Fluss.",
    "The men (two) didn't see 12 dogs; the dogs saw the men!",
    "Die Hunde sahen die Männer, die Männer sahen die Hunde nicht.",
] * 2
SIZES = {"words": 60, "wordpiece": 260, "spaces": 60, "bpe": 120, "unigram": 120, "bytes": 320}
KINDS: list[Kind] = ["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes"]


def config(kind: Kind, **options: object) -> TokenizerConfig:
    size = {"vocab": SIZES[kind]} if kind in SIZES else {}
    return TokenizerConfig.model_validate({"kind": kind, **size, **options})


def test_every_kind_is_tested() -> None:
    assert set(KINDS) == set(LEARNERS)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_merges_from_counted_words_are_those_from_lines(kind: Kind, lowercase: bool) -> None:
    draw = random.Random(1)
    lines = ["".join(draw.choices(f"abcAB12,.é\u0301\t\u00a0{BAR}      ", k=30)) for _ in range(200)]
    given = config(kind, lowercase=lowercase)
    library = PIPELINES[kind](normalizing_steps(given.normalize, lowercase))
    trainer = trainers.BpeTrainer(
        vocab_size=given.vocab,
        min_frequency=given.min_frequency,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if kind == "bytes" else [],
        show_progress=False,
    )
    library.train_from_iterator(skip_blank(lines), trainer)
    codec = train_tokenizer(given, lines).codec
    assert isinstance(codec, LibraryCodec)
    assert json.loads(codec.library.to_str()) == json.loads(library.to_str())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_lines_in_any_order_give_the_same_file(kind: Kind) -> None:
    # Many ties: random words over few letters, each hardly more frequent than the next.
    draw = random.Random(0)
    lines = ["".join(draw.choices("abcdef ,.", k=30)) for _ in range(60)]
    orders = [lines, lines, *(draw.sample(lines, len(lines)) for _ in range(4))]
    assert len({train_tokenizer(config(kind), order).to_json() for order in orders}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_our_special_ids_are_zero_to_three(kind: Kind) -> None:
    assert train_tokenizer(config(kind), LINES).specials == Specials(pad=0, start=1, end=2, unk=3)


@pytest.mark.parametrize("kind", SIZES)
def test_the_vocabulary_has_the_requested_size_including_tags(kind: Kind) -> None:
    room = {"words": 30, "wordpiece": 120, "spaces": 24, "unigram": 62}.get(kind, SIZES[kind])
    assert len(train_tokenizer(config(kind, vocab=room), LINES, tags=["<2de>", "<2fr>"])) == room


@pytest.mark.parametrize("kind", ["characters", "wordpiece", "bpe", "unigram", "bytes"])
def test_no_character_of_the_training_text_is_unknown(kind: Kind) -> None:
    lines = [*LINES, "odd\tones: \u2047 \u2585 \x01 \u00a0 中文 🙂 e\u0301 \ufeff"]
    tokenizer = train_tokenizer(config(kind, normalize="none"), lines)
    for line in lines:
        assert tokenizer.specials.unk not in tokenizer.encode(line)
        assert tokenizer.decode(tokenizer.encode(line)) == (" ".join(line.split()) if kind == "wordpiece" else line)


def test_characters_reserved_by_the_unigram_trainer_are_counted() -> None:
    lines = [*LINES, "\u2047\u2585\t\r"]
    needed = 4 + len(set("".join(lines)) - {" "} | {"▁"})
    assert len(train_tokenizer(config("unigram", vocab=needed + 5), lines)) == needed + 5


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "bytes"])
def test_a_vocabulary_too_small_for_the_alphabet_is_an_error_with_the_size_needed(kind: Kind) -> None:
    tags = ["<2de>", "<2fr>"]
    with pytest.raises(ConfigError, match=r"vocab = 20 is too small.* need (\d+)") as caught:
        train_tokenizer(config(kind, vocab=20), LINES, tags)
    needed = int(str(caught.value.args[0]).rsplit(" ", 1)[1])
    alphabet = 256 if kind == "bytes" else len(set("".join(LINES)) - {" "} | {"▁"})
    if kind == "wordpiece":
        alphabet *= 2  # with the joiner in place of the bar, at the beginning and inside of a word
    assert needed == alphabet + 4 + len(tags)
    assert len(train_tokenizer(config(kind, vocab=needed), LINES, tags)) == needed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", "  ", "\n"]])
def test_empty_text_is_an_error(kind: Kind, lines: list[str]) -> None:
    with pytest.raises(DataError, match="training text is empty"):
        train_tokenizer(config(kind), lines)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_in_the_text_is_an_error(kind: Kind) -> None:
    with pytest.raises(DataError, match="half of a surrogate pair"):
        train_tokenizer(config(kind), [*LINES, "cut \ud83d here"])


@pytest.mark.parametrize("kind", KINDS)
def test_one_short_line_is_enough(kind: Kind) -> None:
    tokenizer = train_tokenizer(config(kind, **({"min_frequency": 1} if kind in ("words", "spaces") else {})), ["a"])
    assert tokenizer.decode(tokenizer.encode("a")) == "a"


def test_wordpieces_are_the_frequent_ones_and_the_longest_match_wins() -> None:
    lines = ["walk walk walking walked walks walk", "going sing ring king"]
    alphabet = set("".join(lines)) - {" "} | {"￭"}
    merges = 3 + 2  # of w ##a ##l ##k and of ##i ##n ##g
    tokenizer = train_tokenizer(config("wordpiece", vocab=4 + 2 * len(alphabet) + merges), lines)
    assert tokenizer.pieces(tokenizer.encode("walking wing, ✓")) == ["▁walk", "ing", "▁w", "ing", "▁<unk>", "▁<unk>"]


def test_only_rare_words_are_unknown() -> None:
    tokenizer = train_tokenizer(config("words", min_frequency=3), ["a dog", "a dog", "a cat runs", "a cat runs", "a dog"])
    assert tokenizer.decode(tokenizer.encode("a dog runs a cat")) == "a dog <unk> a <unk>"


def test_a_vocabulary_without_room_for_a_word_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"vocab = 5 is too small: 1 words, 4 special tokens and 1 tags need 6"):
        train_tokenizer(config("words", vocab=5), LINES, ["<2de>"])


def test_a_text_without_frequent_words_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no word .* occurs tokenizer.min_frequency = 5 times"):
        train_tokenizer(config("words", min_frequency=5), ["a dog"])


@pytest.mark.parametrize("kind", KINDS)
def test_lowercasing_and_normalizing_apply_to_training_and_encoding(kind: Kind) -> None:
    tokenizer = train_tokenizer(config(kind, lowercase=True, normalize="nfkc"), LINES)
    assert tokenizer.encode("Die MA\u0308NNER") == tokenizer.encode("die männer")
    assert tokenizer.decode(tokenizer.encode("Die MA\u0308NNER")) == "die männer"
    assert tokenizer.description == f"{kind} {len(tokenizer)}, nfkc, lower-cased"


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k not read")
def test_multi30k_has_no_unknown_tokens_and_survives_a_round_trip() -> None:
    def read(name: str) -> list[str]:
        with gzip.open(Path(os.environ["HEED_DATA"], "multi30k", f"{name}.gz"), "rt", encoding="utf-8") as file:
            return file.read().splitlines()

    train = read("train.en")[::2] + read("train.de")[::2]
    valid = read("valid.en") + read("valid.de")
    tokenizer = train_tokenizer(TokenizerConfig(vocab=8000), train)
    assert len(tokenizer) == 8000
    assert not any(tokenizer.specials.unk in ids for ids in tokenizer.encode_many(train))
    back = tokenizer.decode_many(tokenizer.encode_many(valid))
    same = sum(text == normalize(line, "nfc") for text, line in zip(back, valid, strict=True))
    assert len(valid) == 2028
    assert same >= 0.999 * len(valid)
    words = sum(len(line.split()) for line in valid)
    assert sum(map(len, tokenizer.encode_many(valid))) < 1.5 * words
