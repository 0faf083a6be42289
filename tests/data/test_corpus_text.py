"""Plain text: finding the files, splitting, encoding and decoding."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import config_problems

from heedful.data import text_store
from heedful.data.corpus_text import Passage, TextConfig, TextFile, check_passage, passages, read_passage
from heedful.data.text_store import decode_text, encode_text, find_text, open_text
from heedful.errors import DataError
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer

LINES = ["It was a dark night .", "", "Two men , one of them old , ran to the river .", "The end ."]


def tokenizer_of(kind: str) -> Tokenizer:
    options = {} if kind == "characters" else {"min_frequency": 1} if kind == "spaces" else {"vocab": 300}
    return train_tokenizer(TokenizerConfig.model_validate({"kind": kind, **options}), LINES)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"{line}\n" for line in LINES * 10))
    return path


@pytest.mark.parametrize("kind", ["characters", "spaces", "bytes"])
def test_decoding_the_tokens_of_a_file_restores_it(kind: str, book: Path, tmp_path: Path) -> None:
    data = TextConfig.model_validate({"form": "text", "train": {"file": str(book)}, "valid": {"file": str(book)}})
    tokenizer = tokenizer_of(kind)
    text = open_text(passages(data, "train"), tokenizer, tmp_path)
    content = book.read_text()
    assert decode_text(tokenizer, text.ids.tolist()) == content
    assert text.ids.tolist() == encode_text(tokenizer, content)
    assert (text.lines, text.words) == (40, len(content.split()))
    assert text.characters == text.bytes == len(content)
    if kind == "characters":
        assert len(text.ids) == len(content)
    if kind == "spaces":
        assert len(text.ids) == text.words + text.lines


def test_bytes_are_counted_in_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ä\nb\n")
    data = TextConfig.model_validate({"form": "text", "file": str(tmp_path / "a.txt"), "held_out": 0.0})
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["ä b"])
    text = open_text(passages(data, "train"), tokenizer, tmp_path)
    assert (text.characters, text.bytes) == (4, 5)


@given(text=st.text(st.sampled_from("ab \n")))
def test_decode_inverts_encode_for_known_characters(text: str) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["ab "])
    assert decode_text(tokenizer, encode_text(tokenizer, text)) == text


@pytest.mark.parametrize("held_out", [0.1, 0.25, 0.5])
def test_the_last_lines_of_a_file_are_for_validation_and_none_is_lost(book: Path, held_out: float) -> None:
    data = TextConfig.model_validate({"form": "text", "file": str(book), "held_out": held_out})
    train, valid = ([line for part in passages(data, split) for line in read_passage(part)] for split in ("train", "valid"))
    assert train + valid == LINES * 10
    characters = sum(len(line) + 1 for line in valid)
    longest = max(map(len, LINES)) + 1
    assert abs(characters - held_out * len(book.read_text())) <= longest
    assert passages(data, "test") == []


def test_a_folder_has_plain_or_gzipped_splits(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\n")
    with gzip.open(tmp_path / "dev.txt.gz", "wt") as file:
        file.write("b\n")
    data = TextConfig.model_validate({"form": "text", "folder": str(tmp_path)})
    assert [list(read_passage(part)) for split in ("train", "valid") for part in passages(data, split)] == [["a"], ["b"]]
    assert passages(data, "test") == []
    (tmp_path / "train.txt").unlink()
    with pytest.raises(DataError, match=r"has no train\.txt and no train\.txt\.gz"):
        passages(data, "train")


def test_one_column_of_a_table_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tgood film\n0\tbad film\n")
    table = {"file": str(tmp_path / "a.tsv"), "column": 2}
    data = TextConfig.model_validate({"form": "text", "train": [table, table], "valid": table})
    assert [list(read_passage(part)) for part in passages(data, "train")] == [["good film", "bad film"]] * 2
    (tmp_path / "a.tsv").write_text("1\tgood film\nbroken\n")
    with pytest.raises(DataError, match=r"a\.tsv line 2 has 1 column; expected at least 2, separated by tabs"):
        list(read_passage(passages(data, "train")[0]))


def test_encoded_text_is_cached_until_it_or_its_file_changes(book: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of("characters")
    data = TextConfig.model_validate({"form": "text", "file": str(book), "held_out": 0.5})
    first = open_text(passages(data, "train"), tokenizer, tmp_path)
    (folder,) = (path for path in (tmp_path / "text").iterdir() if path.is_dir())
    before = (folder / "ids").stat().st_mtime_ns
    open_text(passages(data, "train"), tokenizer, tmp_path)
    assert (folder / "ids").stat().st_mtime_ns == before
    (folder / "ids").write_bytes(b"\0\1" * len(first.ids))  # as long as before
    assert find_text(folder) is None
    assert open_text(passages(data, "train"), tokenizer, tmp_path).ids.tolist() == encode_text(
        tokenizer, book.read_text()[: first.characters]
    )
    book.write_text("The end .\n" * 4)
    assert open_text(passages(data, "train"), tokenizer, tmp_path).lines == 2


def test_missing_and_conflicting_options_are_errors() -> None:
    assert "given none of them; expected one of folder, file" in config_problems(TextConfig, form="text")[""]
    assert "given folder and file; expected one of" in config_problems(TextConfig, form="text", folder="a", file="b")[""]
    assert (
        config_problems(TextConfig, form="text", train={"file": "a"})["valid"]
        == "missing; expected a table with a file, or data.split"
    )
    assert "data.file is not given" in config_problems(TextConfig, form="text", folder="a", held_out=0.2)["held_out"]


def test_a_weight_or_a_temperature_without_effect_is_an_error() -> None:
    file = {"file": "a"}
    assert (
        config_problems(TextConfig, form="text", train=file, valid={**file, "weight": 2.0})[""]
        == "valid: weight would have no effect; only train is weighted"
    )
    sentence = "temperature would have no effect: it needs several corpora in train"
    assert config_problems(TextConfig, form="text", train=file, valid=file, temperature=2.0)[""] == sentence
    assert config_problems(TextConfig, form="text", folder="a", temperature=2.0)[""] == sentence
    weighted = {"form": "text", "train": [file, {**file, "weight": 2}], "valid": file}
    assert TextConfig.model_validate(weighted).weights == (1.0, 2.0)
    assert TextConfig.model_validate(weighted).is_mixed and TextConfig.model_validate(weighted | {"temperature": 2}).is_mixed
    assert not TextConfig.model_validate(weighted | {"train": [file, file]}).is_mixed


def test_a_long_line_is_stored_as_if_encoded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = " ".join(LINES * 9)
    (tmp_path / "long.txt").write_text(line)
    tokenizer = tokenizer_of("bytes")
    monkeypatch.setattr("heedful.text.long_lines.MAX_CHARACTERS", 50)
    text = open_text([Passage(tmp_path / "long.txt")], tokenizer, tmp_path)
    assert text.ids.tolist() == [*tokenizer.encode(line), tokenizer.specials.end]
    assert text.lines == 1


def test_a_column_name_in_line_1_is_an_error_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("label\ttext\n1\tgood\n")
    with pytest.raises(DataError, match="line 1 looks like a header: column 2 is 'text'"):
        list(read_passage(Passage(path, 2)))
    assert list(read_passage(Passage(path, 2, header=True))) == ["good"]
    assert list(read_passage(Passage(path, 2, header=False))) == ["text", "good"]
    assert config_problems(TextFile, file="a", header=True) == {"header": "would have no effect without column"}


BAD = {"utf8": "caf\xe9".encode("latin-1"), "nul": b"a\0b"}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("at", [0, 20, 39, 40])
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_an_unusable_line_is_skipped_and_reported_in_one_split(book: Path, kind: str, at: int, held_out: float) -> None:
    lines = book.read_bytes().splitlines()
    book.write_bytes(b"\n".join([*lines[:at], BAD[kind], *lines[at:]]) + b"\n")
    data = TextConfig.model_validate({"form": "text", "file": str(book), "held_out": held_out})
    parts = [(split, part) for split in ("train", "valid")[: 1 + bool(held_out)] for part in passages(data, split)]
    assert [line for _, part in parts for line in read_passage(part)] == LINES * 10
    checks = [check_passage(split, part) for split, part in parts]
    assert sum(check.total for check in checks) == 41 and sum(check.kept for check in checks) == 40
    (finding,) = (finding for check in checks for finding in check.findings)
    assert (finding.kind, finding.count, finding.examples[0].place) == (kind, 1, f"{book} line {at + 1}")


def test_a_file_in_another_encoding_is_refused_with_the_conversion_command(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("caf\xe9\ntea\n".encode("latin-1") * 10)
    error = check_passage("train", Passage(tmp_path / "a")).training_error(0.05)
    assert str(error).replace(f"{tmp_path}/", "") == (
        "a: 10 of 20 lines are unusable; expected at most the fraction data.max_unusable = 0.05; 10 lines that are not UTF-8, "
        "the first at a line 1: byte 4 is not UTF-8\n\nhint: convert it: iconv -f ISO-8859-1 -t UTF-8 a > a.utf8; "
        "or set data.max_unusable = 0.5 to skip them"
    )


def test_memory_is_bounded_for_a_line_of_any_length(tmp_path: Path) -> None:
    """Tokenized at once, a character takes 200 bytes: 1.2 GB."""
    (tmp_path / "a").write_bytes(b"abcdefghij" * 600_000 + b"\nThe end .\nThe end .\n")
    program = """
import re, sys
from pathlib import Path
from heedful.data.corpus_text import Passage, read_passage
from heedful.data.text_store import open_text
from heedful.text import TokenizerConfig, train_tokenizer
part = Passage(Path(sys.argv[1]) / "a")
tokenizer = train_tokenizer(TokenizerConfig(kind="bpe", vocab=200), read_passage(part))
assert len(open_text([part], tokenizer, Path(sys.argv[1])).ids) > 10**6
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])  # ru_maxrss would count the parent's, too
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 700_000  # kB


def test_a_store_that_another_process_builds_first_is_not_replaced(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process maps its files: whoever waited for the lock must open them instead of writing new ones."""
    parts, tokenizer = [Passage(book)], tokenizer_of("characters")
    files: list[int] = []

    def find_before_another_builds(folder: Path) -> text_store.TextStore | None:
        if files:
            return find_text(folder)
        monkeypatch.undo()
        open_text(parts, tokenizer, tmp_path)
        files.append((folder / "ids").stat().st_ino)
        return None

    monkeypatch.setattr(text_store, "find_text", find_before_another_builds)
    text = open_text(parts, tokenizer, tmp_path)
    assert [path.stat().st_ino for path in tmp_path.glob("text/*/ids")] == files
    assert decode_text(tokenizer, text.ids.tolist()) == book.read_text()
