from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from workshop import time_limit

from heedful.data.sources import CorpusConfig, RawPair, files_of, place_of, raw_pairs, refuse_streams
from heedful.errors import DataError

PAIRS = [("A dog.", "Ein Hund."), ("Two\u2028cats.", "Zwei\x85Katzen."), ("é", "ü")]
RAW = [RawPair(number, source.encode(), target.encode()) for number, (source, target) in enumerate(PAIRS, start=1)]


def corpora(folder: Path) -> dict[str, CorpusConfig]:
    """The same pairs in every form."""
    sides = ["\n".join(side) + "\n" for side in zip(*PAIRS, strict=True)]
    for language, text in zip(("en", "de"), sides, strict=True):
        (folder / f"plain.{language}").write_text(text, newline="\n")
        (folder / f"train.{language}.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "pairs.tsv").write_text("".join(f"7\t{b}\tx\t{a}\n" for a, b in PAIRS), newline="\n")
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"a.b": a, "t": {"de": b}}) + "\n" for a, b in PAIRS))
    return {
        "files": CorpusConfig(source=f"{folder}/plain.en", target=f"{folder}/train.de.gz"),
        "tsv": CorpusConfig(tsv=f"{folder}/pairs.tsv", columns=(4, 2)),
        "jsonl": CorpusConfig(jsonl=f"{folder}/pairs.jsonl", fields=("a.b", "t.de")),
        "folder": CorpusConfig(folder=str(folder), languages=("en", "de")),
    }


@pytest.mark.parametrize("form", ["files", "tsv", "jsonl", "folder"])
def test_every_form_gives_the_same_pairs(tmp_path: Path, form: str) -> None:
    assert list(raw_pairs(corpora(tmp_path)[form])) == RAW


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_any_text_survives_jsonl(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "pairs.jsonl"
    path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs))
    read = [(source.decode(), target.decode()) for _, source, target in raw_pairs(CorpusConfig(jsonl=str(path)))]
    assert read == pairs


def test_relative_paths_are_resolved_here_then_in_heed_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    working, shared = tmp_path / "here", tmp_path / "there"
    for folder in (working, shared / "c"):
        folder.mkdir(parents=True)
    corpora(shared / "c")
    monkeypatch.chdir(working)
    monkeypatch.setenv("HEED_DATA", str(shared))
    corpus = CorpusConfig(folder="c", languages=("en", "de"))
    assert files_of(corpus) == (shared / "c/train.en.gz", shared / "c/train.de.gz")
    (working / "c").mkdir()
    corpora(working / "c")
    assert files_of(corpus) == (Path("c/train.en.gz"), Path("c/train.de.gz"))


def folder_with(path: Path, *names: str) -> str:
    for name in names:
        for language in ("en", "de"):
            (path / f"{name}.{language}").write_text("x\n")
    return str(path)


def test_a_split_is_found_by_its_name_or_prefix(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "train", "val", "test2016")
    files = {
        split: files_of(CorpusConfig(folder=folder, languages=("de", "en"), split=split))[0].name
        for split in ("train", "valid", "test", "test2016")
    }
    assert files == {"train": "train.de", "valid": "val.de", "test": "test2016.de", "test2016": "test2016.de"}


def test_an_exact_name_wins_over_longer_ones(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "test", "test2016", "test2017")
    assert files_of(CorpusConfig(folder=folder, languages=("en", "de"), split="test"))[0].name == "test.en"


def test_the_config_decides_whether_a_header_is_skipped_or_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("en\tde\none\teins\n")
    assert list(raw_pairs(CorpusConfig(tsv=str(path), header=True))) == [RawPair(2, b"one", b"eins")]
    assert list(raw_pairs(CorpusConfig(tsv=str(path), header=False))) == [RawPair(1, b"en", b"de"), RawPair(2, b"one", b"eins")]
    with pytest.raises(ValidationError, match="header would have no effect with jsonl"):
        CorpusConfig(jsonl=str(path), header=True)


def test_a_pipe_is_read_in_one_pass(tmp_path: Path) -> None:
    sides = []
    for name, text in (("a", b"one\ntwo\n"), ("b", b"eins\nzwei\n")):
        os.mkfifo(tmp_path / name)
        sides.append(Thread(target=(tmp_path / name).write_bytes, args=(text,), daemon=True))
        sides[-1].start()
    corpus = CorpusConfig(source=f"{tmp_path}/a", target=f"{tmp_path}/b")
    with time_limit(20):  # a second open of a FIFO waits forever
        assert list(raw_pairs(corpus)) == [RawPair(1, b"one", b"eins"), RawPair(2, b"two", b"zwei")]
    with pytest.raises(DataError, match="a is a pipe or a device, which can be read only once"):
        refuse_streams(files_of(corpus))
    with pytest.raises(DataError, match="standard input is a pipe"):
        refuse_streams([Path("-")])
    with pytest.raises(DataError, match="does not exist"):
        refuse_streams([tmp_path / "c"])


def test_places_name_the_file_of_the_side(tmp_path: Path) -> None:
    corpus = corpora(tmp_path)["folder"]
    assert place_of(corpus, 3) == f"{tmp_path}/train.en.gz line 3"
    assert place_of(corpus, 3, "target") == f"{tmp_path}/train.de.gz line 3"


def test_the_built_in_corpus_comes_from_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(split: str, count: int, seed: int) -> Iterator[SimpleNamespace]:
        return (
            SimpleNamespace(source=f"{split} {seed} {number}", target="è", alignment=frozenset()) for number in range(count)
        )

    monkeypatch.setitem(sys.modules, "heedful.data.grammar", SimpleNamespace(generate=generate))
    corpus = CorpusConfig(builtin=True, split="valid", count=2, seed=5)
    assert list(raw_pairs(corpus)) == [RawPair(1, b"valid 5 0", "è".encode()), RawPair(2, b"valid 5 1", "è".encode())]
    assert place_of(corpus, 2) == "built-in valid pair 2"
    assert files_of(corpus) == ()


BROKEN: dict[str, tuple[dict[str, object], dict[str, bytes], str]] = {
    "source shorter": (
        {"source": "a", "target": "b"},
        {"a": b"1\n2\n", "b": b"1\n2\n3\n4\n5"},
        "a has 2 lines, but b has 5; expected the same number, "
        "with line n of one the translation of line n of the other\n\nhint: look for a missing, extra or split line",
    ),
    "target shorter": (
        {"source": "a", "target": "b"},
        {"a": b"1\n" * 1200, "b": b"1\n"},
        "a has 1,200 lines, but b has 1; expected the same number, "
        "with line n of one the translation of line n of the other\n\nhint: look for a missing, extra or split line",
    ),
    "tsv": (
        {"tsv": "a"},
        {"a": b"1\t2\n1\n"},
        "a line 2 has 1 column; expected at least 2, separated by tabs\n\n"
        "hint: check the tabs of that line, or set `columns`, for example columns = [1, 2], counted from 1",
    ),
    "not json": (
        {"jsonl": "a"},
        {"a": b'{"source": "x", "target": "y"}\n{"source": \n'},
        "a line 2 is not JSON: Expecting value\n\nhint: write one JSON object per line, without blank lines",
    ),
    "not an object": (
        {"jsonl": "a"},
        {"a": b"[1]\n"},
        'a line 1 is [1]; expected a JSON object\n\nhint: write for example {"source": "…", "target": "…"}',
    ),
    "no field": (
        {"jsonl": "a"},
        {"a": b'{"source": "x", "targte": "y"}\n'},
        "a line 1 has no field 'target'; its fields are: 'source', 'targte'\n\nhint: did you mean 'targte'?",
    ),
    "not a text": (
        {"jsonl": "a"},
        {"a": b'{"source": "x", "target": 3}\n'},
        "a line 1: field 'target' is 3; expected a string",
    ),
    "no split": (
        {"folder": ".", "languages": ("en", "de"), "split": "valid"},
        {"train.en": b"1\n", "train.de": b"1\n", "valid.en": b"1\n"},
        ". has no valid.en[.gz] with valid.de[.gz]; it has these splits in both languages: train\n\n"
        "hint: name the files <split>.<language> or <split>.<language>.gz",
    ),
    "several tests": (
        {"folder": ".", "languages": ("en", "de"), "split": "test"},
        {f"{name}.{language}": b"1\n" for name in ("test1", "test2") for language in ("en", "de")},
        ". has several files for 'test': test1, test2; expected one per language\n\n"
        'hint: choose one, for example split = "test1" with folder and languages in [data.test]',
    ),
    "no folder": (
        {"folder": "nowhere", "languages": ("en", "de")},
        {},
        "there is no folder 'nowhere' in the working directory, in ./data or in $HEED_DATA (not set)\n\n"
        "hint: check the path; relative paths are resolved against the working directory, ./data and $HEED_DATA",
    ),
    "a public corpus that is not here": (
        {"folder": "multi30k", "languages": ("en", "de")},
        {},
        "there is no folder 'multi30k' in the working directory, in ./data or in $HEED_DATA (not set)\n\n"
        "hint: run `heed data get multi30k` to download this public corpus",
    ),
    "nearly a public corpus": (
        {"folder": "multi30", "languages": ("en", "de")},
        {},
        "there is no folder 'multi30' in the working directory, in ./data or in $HEED_DATA (not set)\n\n"
        "hint: did you mean 'multi30k'? `heed data get multi30k` downloads it",
    ),
    "nearly a folder": (
        {"folder": "corpora/mine1", "languages": ("en", "de")},
        {"corpora/mine2/train.en": b"1\n"},
        "there is no folder 'corpora/mine1' in the working directory, in ./data or in $HEED_DATA (not set)\n\n"
        "hint: did you mean 'corpora/mine2'?",
    ),
    "a file for a folder": (
        {"folder": "x.tsv", "languages": ("en", "de")},
        {"x.tsv": b"1\n"},
        "x.tsv is a file; expected a folder",
    ),
    "a number of thousands of digits": (
        {"jsonl": "x.jsonl"},
        {"x.jsonl": b'{"source": "a", "target": "b", "id": ' + b"1" * 5000 + b"}\n"},
        "x.jsonl line 1 is not JSON: a number has 5,000 digits\n\nhint: write one JSON object per line, without blank lines",
    ),
    "the same file twice": (
        {"source": "a", "target": "x/../a"},
        {"a": b"1\n2\n", "x/b": b""},
        "a and x/../a are the same file; expected a source and its translation\n\n"
        "hint: check the file names of source and target",
    ),
    "a header of a table": (
        {"tsv": "a"},
        {"a": b"Source\tTarget\nx\ty\n"},
        "a line 1 looks like a header: Source, Target; expected a sentence pair\n\n"
        "hint: set header = true, next to the file in [data], to skip that line (heed data check: --header), or "
        "header = false to train on it",
    ),
    "a header of two files": (
        {"source": "a", "target": "b"},
        {"a": b"en\nx\n", "b": b"de\ny\n"},
        "a line 1 looks like a header: en, de; expected a sentence pair\n\n"
        "hint: set header = true, next to the file in [data], to skip that line (heed data check: --header), or "
        "header = false to train on it",
    ),
    "deep nesting": (
        {"jsonl": "a"},
        {"a": b"[" * 100_000 + b"\n"},
        "a line 1 is not JSON: too deeply nested\n\nhint: write one JSON object per line, without blank lines",
    ),
    "a key twice": (
        {"jsonl": "a"},
        {"a": b'{"source": "x", "target": "y", "source": "z"}\n'},
        "a line 1 is not JSON: the key 'source' occurs twice\n\nhint: write one JSON object per line, without blank lines",
    ),
    "not a number": (
        {"jsonl": "a"},
        {"a": b'{"source": "x", "target": "y", "n": NaN}\n'},
        "a line 1 is not JSON: NaN is not a JSON number\n\nhint: write one JSON object per line, without blank lines",
    ),
    "UTF-16 on one side": (
        {"source": "a", "target": "b"},
        {"a": b"one\ntwo\n", "b": "\nzwei\n\n\n".encode("utf-16")},
        "b is UTF-16; expected UTF-8\n\nhint: convert it: iconv -f UTF-16 -t UTF-8 b > b.utf8",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_malformed_corpus_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    options, files, message = BROKEN[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEED_DATA", raising=False)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(raw_pairs(CorpusConfig.model_validate(options)))
    assert str(caught.value) == message
    assert caught.value.exit_code == 3


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "none": ({}, "expected one of source + target, tsv, jsonl, parquet, dataset, folder or builtin, but none is given"),
    "two": ({"tsv": "a", "jsonl": "b"}, "but tsv and jsonl are given"),
    "half": ({"source": "a"}, "source is given without target"),
    "no languages": ({"folder": "a"}, "folder is given without languages"),
    "no count": ({"builtin": True}, "builtin is given without count"),
    "no such split": ({"builtin": True, "count": 3, "split": "dev"}, "split is 'dev'; expected one of: train, valid, test"),
    "stray": ({"source": "a", "target": "b", "columns": (1, 2)}, "columns would have no effect with source"),
    "same": ({"tsv": "a", "columns": (2, 2)}, "columns is [2, 2]; expected different values for source and target"),
    "one file": ({"source": "a", "target": "./a"}, "source and target are both 'a'; expected two files"),
    "zero": ({"tsv": "a", "columns": (0, 1)}, "greater than or equal to 1"),
    "unknown": ({"tsv": "a", "colums": (1, 2)}, "Extra inputs are not permitted"),
    "tag": ({"tsv": "a", "tag": "to de"}, "should match pattern"),
    "weight": ({"tsv": "a", "weight": 0}, "greater than 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_config_is_a_clear_error(case: str) -> None:
    options, message = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        CorpusConfig.model_validate(options)
    assert message in str(caught.value)
