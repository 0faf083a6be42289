"""Properties of every kind of tokenizer: round trips of text and files, words of pieces, special tokens."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.errors import DataError
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer
from heedful.text.library import panics_as_errors
from heedful.text.normalize import normalize
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import CODECS, OPTIONS, Kind

LINES = [
    "Two men (one old) don't walk, slowly, to the river; they run!",
    "Zwei Männer gehen nicht langsam zum Fluss: sie rennen 12 km.",
    "A dog sees the men and the river. <s> a </s> <pad> <unk>",
    "to (run)! they(run) -- a-b 12km 'so' !! ( ... ## ##a",
]
ALPHABET = sorted(set("".join(LINES)))
WORDS = " ".join(LINES).split()
KINDS: list[Kind] = ["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes"]
ANY = st.text(st.one_of(st.sampled_from(" <s>/paä1,\n"), st.characters(exclude_categories=["Cs"])))


@cache
def trained(kind: Kind, normalize: str = "none") -> Tokenizer:
    sizes = {"characters": {}, "words": {"min_frequency": 1}, "spaces": {"min_frequency": 1}, "bytes": {"vocab": 320}}
    size = sizes.get(kind, {"vocab": 160})
    config = TokenizerConfig.model_validate({"kind": kind, "normalize": normalize, **size})
    return train_tokenizer(config, LINES, tags=["<2de>", "<2fr>", "<mask>"])


def test_every_kind_is_registered() -> None:
    assert set(OPTIONS) == set(CODECS) == {*KINDS, "sentencepiece"}


@pytest.mark.parametrize("kind", ["characters", "wordpiece", "bpe", "unigram", "bytes"])
@settings(deadline=None)
@given(text=st.text(ALPHABET))
def test_text_over_the_training_alphabet_survives_a_round_trip(kind: Kind, text: str) -> None:
    text = " ".join(text.split()) if kind == "wordpiece" else text
    assert trained(kind).decode(trained(kind).encode(text)) == text


@pytest.mark.parametrize("text", ["##a", "## ##", "a##b", "a" * 95, "a" * 96, "a" * 97, "12km" * 5000, "a" * 96 + "-b"])
def test_wordpieces_restore_number_signs_and_long_words(text: str) -> None:
    tokenizer = trained("wordpiece")
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and tokenizer.specials.unk not in ids
    assert tokenizer.decode(ids[1:]) == text.removeprefix(tokenizer.pieces(ids[:1])[0].strip("▁"))


@settings(deadline=None)
@given(text=ANY)
def test_bytes_restore_any_text(text: str) -> None:
    tokenizer = trained("bytes")
    assert tokenizer.decode(tokenizer.encode(text)) == text
    normalizing = trained("bytes", "nfkc")
    assert normalizing.decode(normalizing.encode(text)) == normalize(text, "nfkc")


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
@settings(deadline=None)
@given(words=st.lists(st.sampled_from(WORDS)))
def test_known_words_and_punctuation_survive_a_round_trip(kind: Kind, words: list[str]) -> None:
    tokenizer = trained(kind)
    text = " ".join(words)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
def test_training_lines_have_no_unknown_words(kind: Kind) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode_many(tokenizer.encode_many(LINES)) == LINES
    assert tokenizer.decode(tokenizer.encode("  the   men ")) == "the men"


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=ANY)
def test_no_text_encodes_to_padding_start_or_end(kind: Kind, text: str) -> None:
    specials = trained(kind).specials
    for joined in (text, f"{text}<s>{text}</s> <pad>"):
        assert {specials.pad, specials.start, specials.end}.isdisjoint(trained(kind).encode(joined))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=ANY.map(lambda text: text.replace("▁", "").replace("￭", "")))
def test_joined_piece_bytes_are_the_decoded_text(kind: Kind, text: str) -> None:
    ids = trained(kind).encode(text)
    joined = b"".join(piece for _, piece in trained(kind).piece_bytes(ids)).decode()
    assert joined == trained(kind).decode(ids) if kind == "characters" else joined[1:] == trained(kind).decode(ids)


def check_words(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.specials.unk not in ids
    words = [b""] * len(text.split())
    for index, (_, piece) in zip(tokenizer.word_of(ids), tokenizer.piece_bytes(ids), strict=True):
        if words:
            words[index] += piece
    assert [word.decode().strip() for word in words] == text.split()


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(words=st.lists(st.sampled_from(WORDS)))
def test_pieces_of_one_word_together_are_that_word(kind: Kind, words: list[str]) -> None:
    known = [word for word in words if kind != "spaces" or word not in SPECIALS]
    check_words(trained(kind), " ".join(known))


def test_special_tokens_in_text_are_unknown_words_for_kind_spaces() -> None:
    tokenizer = trained("spaces")
    unknown = tokenizer.specials.unk
    assert [tokenizer.encode(word) for word in SPECIALS] == [[unknown]] * 4
    assert tokenizer.decode(tokenizer.encode("the don't, <unk> don't </s>s 12km")) == "the <unk> <unk> don't <unk> 12km"
    assert max(tokenizer.codec.content()["model"]["vocab"].values()) == len(tokenizer) - 4  # besides three tags


@pytest.mark.parametrize("kind", ["characters", "bpe", "unigram", "bytes"])
@settings(deadline=None)
@given(text=st.text(ALPHABET))
def test_words_are_found_among_many_spaces(kind: Kind, text: str) -> None:
    check_words(trained(kind), text)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_word_is_still_a_word(kind: Kind) -> None:
    ids = trained(kind).encode("the ЖЖЖ men")
    assert trained(kind).word_of(ids) == sorted(trained(kind).word_of(ids))
    assert set(trained(kind).word_of(ids)) == {0, 1, 2}


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_not_decoded_and_belong_to_no_word(kind: Kind) -> None:
    tokenizer = trained(kind)
    pad, start, end, unk, _ = tokenizer.specials
    ids = tokenizer.encode("the men")
    framed = [start, *ids, end, pad, pad]
    assert tokenizer.decode(framed) == "the men"
    assert tokenizer.word_of(framed) == [-1, *tokenizer.word_of(ids), -1, -1, -1]
    assert tokenizer.pieces(framed) == ["<s>", *tokenizer.pieces(ids), "</s>", "<pad>", "<pad>"]
    assert "<unk>" in tokenizer.decode([*ids, unk])


@pytest.mark.parametrize("kind", KINDS)
def test_punctuation_is_masked_unless_it_is_the_entire_word(kind: Kind) -> None:
    tokenizer = trained(kind)
    pad, start, end, _, _ = tokenizer.specials
    ids = [start, *tokenizer.encode("the men, , walk"), end, pad]
    pieces, words, unpunctuated = tokenizer.pieces(ids), tokenizer.word_of(ids), tokenizer.unpunctuated_word_of(ids)
    changed = [pieces[i] for i, (word, other) in enumerate(zip(words, unpunctuated, strict=True)) if word != other]
    assert changed == ([] if kind == "spaces" else [","])
    assert set(unpunctuated) == {-1, 0, 1, 2, 3}


@pytest.mark.parametrize("kind", KINDS)
def test_encode_many_equals_encode(kind: Kind) -> None:
    tokenizer = trained(kind)
    texts = [*LINES, "", " ", "<2de> the men", "\n"] * 30
    rows = tokenizer.encode_many(texts)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_many(rows) == [tokenizer.decode(row) for row in rows]
    assert tokenizer.encode_many([]) == []
    assert tokenizer.decode_many([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_one_id_before_the_text(kind: Kind) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode("<2de> the men")
    other = tokenizer.encode("<2fr> the men")
    assert ids[0] != other[0]
    assert ids[1:] == other[1:] == tokenizer.encode(" the men" if kind == "characters" else "the men")
    assert tokenizer.decode(ids) == "<2de> the men"
    words = tokenizer.word_of(ids)
    assert (words[0], words[1], words[-1]) == (0, 1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_stands_for_a_word_after_a_space(kind: Kind) -> None:
    tokenizer = trained(kind)
    mask = tokenizer.specials.mask
    assert mask is not None and Tokenizer.from_json(tokenizer.to_json()).specials.mask == mask
    the, men, text = tokenizer.encode("the"), tokenizer.encode("the men")[3 if kind == "characters" else 1 :], "the <mask> men"
    ids = tokenizer.encode(text)
    # Where spaces are pieces, those around the mask are as well; elsewhere any white space around it is the same.
    space = tokenizer.encode(" ") if kind == "characters" else []
    assert ids == [*the, *space, mask, *men]
    assert kind == "characters" or tokenizer.encode("the  <mask>\n men") == tokenizer.encode("the<mask>men") == ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.pieces(ids)[len(the) + len(space)] == "<mask>"
    assert set(zip(tokenizer.word_of(ids), map(mask.__eq__, ids), strict=True)) >= {(0, False), (1, True), (2, False)}
    assert tokenizer.decode(tokenizer.encode("<mask> <mask> men <mask>")) == "<mask> <mask> men <mask>"
    assert train_tokenizer(TokenizerConfig(kind="characters"), LINES).specials.mask is None


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(words=st.lists(ANY.map(lambda text: "".join(text.split())).filter(bool)))
def test_encoded_words_joined_are_the_encoded_sentence(kind: Kind, words: list[str]) -> None:
    rows = trained(kind).encode_many(words)
    assert [id for row in rows for id in row] == trained(kind).encode(("" if kind == "characters" else " ").join(words))


def test_pieces_are_readable() -> None:
    assert "".join(trained("bytes").pieces(trained("bytes").encode("the Ж men"))) == "▁the▁\\xd0\\x96▁men"
    assert trained("characters").pieces(trained("characters").encode("a b")) == ["a", "▁", "b"]
    assert trained("words").pieces(trained("words").encode("don't walk,")) == ["▁don", "'", "t", "▁walk", ","]
    assert trained("wordpiece").pieces(trained("wordpiece").encode("(they) do men")) == ["▁(", "they", ")", "▁do", "▁men"]


def check_offsets(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the characters of each piece: spans must be ordered, inside of the text and without white space around."""
    spans = tokenizer.offsets(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)
    own = [text[start:end] for start, end in spans]
    assert all(characters == characters.strip() or characters.isspace() for characters in own)
    return own


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=st.one_of(ANY, st.lists(st.sampled_from([*WORDS, "<2de>", "<mask>"])).map(" ".join)))
def test_offsets_are_the_characters_of_each_piece(kind: Kind, text: str) -> None:
    tokenizer = trained(kind)
    text = text.replace("▁", "").replace("￭", "")
    own = check_offsets(tokenizer, text)
    ids = tokenizer.encode(text)
    for (id, piece), characters in zip(tokenizer.piece_bytes(ids), own, strict=True):
        if id != tokenizer.specials.unk and characters != "<unk>":
            try:
                assert piece.decode().strip() == characters.strip()
            except UnicodeDecodeError:
                assert piece.strip() in characters.encode()
    covered = {place for span in tokenizer.offsets(text) for place in range(*span)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=ANY)
def test_offsets_refer_to_the_text_before_normalization(kind: Kind, text: str) -> None:
    tokenizer = trained(kind, "nfkc")
    check_offsets(tokenizer, text)
    accented = "The Ma\u0308nner(\ufb01) 12\u00a0km \u00bd"
    own = check_offsets(tokenizer, accented)
    for (id, piece), characters in zip(tokenizer.piece_bytes(tokenizer.encode(accented)), own, strict=True):
        assert id == tokenizer.specials.unk or piece.strip() in normalize(characters, "nfkc").encode()
    assert accented.index("\u0308") not in {start for start, _ in tokenizer.offsets(accented)}  # one character with the "a"


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_and_the_library_loads_it(kind: Kind, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    texts = [*LINES, "<2de> Unseen: <s> 中文"]
    assert loaded.encode_many(texts) == tokenizer.encode_many(texts)
    assert loaded.to_json() == tokenizer.to_json()
    assert (loaded.fingerprint, loaded.description) == (tokenizer.fingerprint, tokenizer.description)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    library = tokenizers.Tokenizer.from_file(str(path))
    ids = library.encode("<2de> the men and", add_special_tokens=False).ids
    assert ids == tokenizer.encode("<2de> the men and")
    assert library.decode(ids) == "<2de> the men and"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_in_another_process_encodes_the_same(kind: Kind) -> None:
    copy = pickle.loads(pickle.dumps(trained(kind)))
    assert copy.encode("<s> the men") == trained(kind).encode("<s> the men")


def test_the_fingerprint_depends_on_the_vocabulary_and_not_on_dropout() -> None:
    def fingerprint(lines: list[str], **options: object) -> str:
        return train_tokenizer(TokenizerConfig.model_validate({"vocab": 100, **options}), lines).fingerprint

    assert fingerprint(LINES) == fingerprint(LINES, dropout=0.1)
    assert len({fingerprint(LINES), fingerprint(LINES[:2]), fingerprint(LINES, lowercase=True)}) == 3


def broken_files() -> dict[str, str]:
    text = trained("bpe").to_json()
    content = json.loads(text)
    foreign = json.loads(text)
    del foreign["model"]["heedful"]
    later = json.loads(text)
    later["model"]["heedful"]["format"] = 2
    return {
        "empty": "",
        "cut": text[: len(text) // 2],
        "a list": "[]",
        "no model": "{}",
        "without header": json.dumps(foreign),
        "of a later format": json.dumps(later),
        "without vocabulary": json.dumps({**content, "model": {"heedful": content["model"]["heedful"]}}),
        "without specials": text.replace('"</s>"', '"x"'),
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_broken_file_is_an_error_with_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(broken_files()[name], encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json' is not a tokenizer of heedful") as caught:
        Tokenizer.load(path)
    assert caught.value.hint is not None


def test_a_missing_or_undecodable_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.json.*No such file"):
        Tokenizer.load(tmp_path / "absent.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"bytes\.json' is not a tokenizer"):
        Tokenizer.load(tmp_path / "bytes.json")


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_error(kind: Kind) -> None:
    with pytest.raises(DataError, match=r"text 2 contains '\\ud83d', half of a surrogate pair"):
        trained(kind).encode_many(["fine", "cut \ud83d here"])


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "characters", "vocab": 100},
        {"kind": "words", "dropout": 0.1},
        {"kind": "unigram", "dropout": 0.1},
        {"kind": "unigram", "min_frequency": 3},
        {"kind": "bpe", "file": "x.model"},
        {"kind": "sentencepiece"},
        {"kind": "sentencepiece", "file": "x.model", "lowercase": True},
        {"kind": "sentencepiece", "file": "x.model", "vocab": 100},
        {"kind": "bpe", "dropout": 1.0},
        {"kind": "bpe", "vocab": 0},
        {"kind": "bep"},
        {"normalize": "nfd"},
    ],
)
def test_impossible_options_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TokenizerConfig.model_validate(options)


def test_an_option_without_effect_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(
        ValidationError, match=r"dropout: given 0\.1, but has no effect with kind = 'words'; its options are: .*vocab"
    ):
        TokenizerConfig(kind="words", dropout=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_complete_config_survives_a_round_trip(kind: Kind) -> None:
    config = TokenizerConfig(kind=kind)
    assert TokenizerConfig.model_validate(config.model_dump()) == config


def test_a_forked_process_encodes_without_warnings() -> None:
    program = """
import os
from heedful.text import TokenizerConfig, train_tokenizer
tokenizer = train_tokenizer(TokenizerConfig(vocab=40), ["the men walk"] * 5)
expected = tokenizer.encode_many(["the men"] * 2000)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_many(["the men"] * 2000) == expected else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_neither_torch_nor_numpy_is_loaded() -> None:
    program = "import sys, heedful.text; raise SystemExit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("kind", "unknown"), [("words", ["zebra", "gnu"]), ("spaces", ["zebra", "gnu"]), ("wordpiece", []), ("bytes", [])]
)
def test_unknown_words_are_listed(kind: Kind, unknown: list[str]) -> None:
    known = trained(kind)
    assert known.unknown_words("the (zebra) the gnu zebra, men") == unknown
    assert known.unknown_words("the men") == known.unknown_words("") == []


def test_unknown_words_are_listed_without_known_parts_and_shortened() -> None:
    known = trained("words")
    assert known.unknown_words("the men? «the» men, they") == ["?", "«", "»"]
    assert known.unknown_words("the " + "z" * 100_000) == ["z" * 40 + "…"]
    assert trained("spaces").unknown_words("the men?") == ["men?"]
    assert trained("wordpiece").unknown_words("the (xЖx) men? Ж") == ["xЖx", "?", "Ж"]


def hostile(kind: Kind) -> dict[str, Callable[[dict[str, Any]], object]]:
    """Changes to the content of a tokenizer.json that the library would accept, fail on, or never finish with."""
    regex = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    bad_regex = {"type": "Replace", "pattern": {"Regex": "(?<=a+"}, "content": ""}
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}

    def renumber(content: dict[str, Any], id: int) -> None:
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary[5][1] = math.inf
        else:
            vocabulary[next(reversed(vocabulary))] = id

    def name_twice(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary[6][0] = vocabulary[5][0]
        else:
            vocabulary[next(reversed(vocabulary))] = 4

    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "an id beyond the table": lambda content: renumber(content, 10**6),
        "a negative id": lambda content: renumber(content, -1),
        "two pieces with one id": name_twice,
        "a backtracking expression": lambda content: content.update(pre_tokenizer=regex),
        "a broken expression": lambda content: content.update(normalizer=bad_regex),
        "a broken map": lambda content: content.update(normalizer=charsmap),
        "another decoder": lambda content: content.update(decoder={"type": "CTC", "pad_token": "a", "cleanup": True}),
        "padding": lambda content: content.update(padding={"strategy": {"Fixed": 10**9}}),
        "an added token": lambda content: content["added_tokens"].append(
            {**content["added_tokens"][0], "content": "a", "id": 9}
        ),
        "another model": lambda content: content["model"].update(type="BPE" if kind == "wordpiece" else "WordPiece"),
        "another normalization": lambda content: content["model"]["heedful"].update(normalization="nfkc"),
        "an empty vocabulary": lambda content: content["model"].update(vocab={}),
        "a key more": lambda content: content.update(more=1),
    }
    if kind in ("bpe", "bytes"):
        changes["a merge of nothing"] = lambda content: content["model"]["merges"].append(["q", "zz"])
        changes["a merge of three"] = lambda content: content["model"]["merges"].append(["a", "b", "c"])
    else:
        changes["dropout without merges"] = lambda content: content["model"]["heedful"].update(dropout=0.5)
    return changes


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_vocabulary_of_a_file_is_used(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    text = trained(kind).to_json()
    for name, change in hostile(kind).items():
        content = json.loads(text)
        change(content)
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match="is not a tokenizer of heedful"):
            print(name, Tokenizer.load(path).encode("a" * 40 + "!"))
    path.write_text(text)
    assert Tokenizer.load(path).fingerprint == trained(kind).fingerprint


def test_a_panic_of_the_library_is_a_data_error() -> None:
    class PanicException(BaseException):
        """Named like the panic of Rust, which is not an Exception either."""

    with pytest.raises(DataError, match="the tokenizer failed: index out of bounds"), panics_as_errors():
        raise PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt), panics_as_errors():
        raise KeyboardInterrupt
