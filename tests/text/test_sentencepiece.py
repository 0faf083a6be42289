"""SentencePiece files: ids are the file's own, missing special tokens come after them, and text survives a round trip."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from heedful.errors import DataError
from heedful.text import Specials, Tokenizer, TokenizerConfig, train_tokenizer
from heedful.text.sentencepiece import SentencePieceCodec, normalization_of

LINES = ["the dog runs to the river", "die Männer gehen zum Fluss", "a dog, two dogs: 12 dogs!"] * 4


def model(**options: Any) -> bytes:
    file = io.BytesIO()
    settings: dict[str, Any] = {
        "vocab_size": 60,
        "hard_vocab_limit": False,
        "normalization_rule_name": "identity",
        "minloglevel": 2,
    }
    SentencePieceTrainer.Train(sentence_iterator=iter(LINES), model_writer=file, **(settings | options))
    return file.getvalue()


MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "bpe": {"model_type": "bpe"},
    "no prefix": {"model_type": "bpe", "add_dummy_prefix": False},
}


@cache
def exact(name: str) -> bytes:
    """A lossless model: every character has a piece or bytes, every space is kept."""
    return model(remove_extra_whitespaces=False, byte_fallback=True, vocab_size=330, **MODELS[name])


def tokenizer_of(folder: Path, content: bytes, tags: list[str] | None = None) -> Tokenizer:
    path = folder / "text.model"
    path.write_bytes(content)
    return train_tokenizer(TokenizerConfig(kind="sentencepiece", file=str(path)), [], tags or [])


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None)
@given(text=st.text(st.one_of(st.sampled_from("  aeost,12"), st.characters(exclude_categories=["Cs"]))))
def test_text_survives_a_round_trip(name: str, text: str) -> None:
    codec = SentencePieceCodec(exact(name))
    text = text.replace("▁", "_")  # which the library itself reads as a space
    [ids] = codec.encode([text])
    assert codec.decode([ids]) == [text]
    spelled = b"".join(codec.piece_bytes(ids)).decode()
    assert spelled == (text if name == "no prefix" or not text else f" {text}")
    spans = codec.offsets(text)
    assert spans == sorted(spans)
    for piece, (start, end) in zip(codec.piece_bytes(ids), spans, strict=True):
        assert piece.strip() in text[start:end].encode() and (piece.strip() or text[start:end].strip() == "")
    covered = {place for span in spans for place in range(*span)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


def test_ids_are_those_of_the_file(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, exact("bpe"))
    reference = SentencePieceProcessor(model_proto=exact("bpe"))
    assert tokenizer.encode_many(LINES) == reference.encode(LINES)


def test_padding_that_the_file_lacks_comes_after_its_vocabulary(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, model())
    size = len(SentencePieceProcessor(model_proto=model()))
    assert tokenizer.specials == Specials(pad=size, start=1, end=2, unk=0)
    assert len(tokenizer) == size + 1
    ids = tokenizer.encode("the dog")
    padded = [1, *ids, 2, size, size]
    assert tokenizer.decode(padded) == "the dog"
    assert tokenizer.word_of(padded)[-3:] == [-1, -1, -1]
    assert tokenizer.pieces(padded)[-1] == "<pad>"


def test_special_ids_that_the_file_has_are_kept(tmp_path: Path) -> None:
    content = model(pad_id=5, bos_id=3, eos_id=0, unk_id=4)
    assert tokenizer_of(tmp_path, content).specials == Specials(pad=5, start=3, end=0, unk=4)


def test_padding_under_its_name_is_found_and_a_missing_start_is_added(tmp_path: Path) -> None:
    content = model(bos_id=-1, control_symbols="[PAD]")
    reference = SentencePieceProcessor(model_proto=content)
    tokenizer = tokenizer_of(tmp_path, content)
    assert tokenizer.specials.pad == reference.piece_to_id("[PAD]")
    assert tokenizer.specials.start == len(reference)


@pytest.mark.parametrize("options", [{}, {"user_defined_symbols": "<2de>"}])
def test_a_tag_is_one_id_before_the_text(tmp_path: Path, options: dict[str, str]) -> None:
    tokenizer = tokenizer_of(tmp_path, model(**options), ["<2de>", "<2fr>"])
    for tag in ("<2de>", "<2fr>"):
        ids = tokenizer.encode(f"{tag} the dog")
        assert tokenizer.pieces(ids[:1])[0].strip("▁") == tag
        assert ids[1:] == tokenizer.encode("the dog")
        assert tokenizer.decode(ids) == f"{tag} the dog"
        assert tokenizer.word_of(ids)[:2] == [0, 1]
        assert tokenizer.word_of(ids)[-1] == 2
    assert len(set(tokenizer.encode("<2de> <2fr>"))) == 2
    known = SentencePieceProcessor(model_proto=model(**options))
    added = ["<pad>", *(tag for tag in ("<2de>", "<2fr>") if known.piece_to_id(tag) == known.unk_id())]
    assert len(tokenizer) == len(known) + len(added)


@pytest.mark.parametrize("options", [{}, {"user_defined_symbols": "<mask>"}, {"control_symbols": "[MASK]"}])
def test_a_mask_stands_for_a_word_and_one_of_the_file_is_found(tmp_path: Path, options: dict[str, str]) -> None:
    known = SentencePieceProcessor(model_proto=model(**options))
    own = next((known.piece_to_id(name) for name in options.values()), None)
    assert tokenizer_of(tmp_path, model(**options)).specials.mask == own
    tokenizer = tokenizer_of(tmp_path, model(**options), ["<2de>", "<mask>"])
    mask = tokenizer.specials.mask
    assert mask == (len(known) + 2 if own is None else own)  # after padding and <2de>
    ids = tokenizer.encode("<2de> the <mask> dog")
    assert ids == [*tokenizer.encode("<2de>"), *tokenizer.encode("the"), mask, *tokenizer.encode("dog")]
    assert tokenizer.decode(ids) == "<2de> the <mask> dog"
    assert tokenizer.pieces(ids)[ids.index(mask)] == "<mask>"
    spans = tokenizer.offsets("<2de>  the <mask> dog")
    assert (spans[0], spans[ids.index(mask)], spans[-1][1]) == ((0, 5), (11, 17), 21)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_of_one_word_together_are_that_word(tmp_path: Path, name: str) -> None:
    tokenizer = tokenizer_of(tmp_path, exact(name))
    text = "the  dög 中文, runs"
    ids = tokenizer.encode(text)
    words = [b""] * len(text.split())
    for index, (_, spelling) in zip(tokenizer.word_of(ids), tokenizer.piece_bytes(ids), strict=True):
        words[index] += spelling
    assert [word.decode().strip() for word in words] == text.split()


def test_the_model_file_is_stored_in_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, exact("unigram"), ["<2de>"])
    tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "text.model").unlink()
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode("<2de> the dog 中") == tokenizer.encode("<2de> the dog 中")
    assert (loaded.specials, len(loaded)) == (tokenizer.specials, len(tokenizer))
    assert loaded.fingerprint == tokenizer.fingerprint
    assert str(tmp_path) not in json.dumps(loaded.to_json())


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc_cf", "nfkc"])
def test_the_report_names_the_normalization_of_the_file(tmp_path: Path, rule: str) -> None:
    content = model(normalization_rule_name=rule)
    expected = "not normalized" if rule == "identity" else rule
    assert normalization_of(content) == expected
    tokenizer = tokenizer_of(tmp_path, content)
    assert tokenizer.description == f"sentencepiece {len(tokenizer)}, {expected}"


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "absent.model")
    with pytest.raises(DataError, match=r"absent\.model.*No such file"):
        train_tokenizer(TokenizerConfig(kind="sentencepiece", file=path), [])


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 64])
def test_a_broken_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match="is not a SentencePiece model"):
        tokenizer_of(tmp_path, content)
