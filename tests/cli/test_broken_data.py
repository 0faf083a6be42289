"""Invalid data files, each with its whole message and exit code 3; an existing run is not changed."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
from workshop import CLASSIFICATION, GPT, LANGUAGE, heed, write_recipe


def gz(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


# name -> files, overrides that read them, message
CASES: dict[str, tuple[dict[str, bytes], list[str], str]] = {
    "unequal line counts": (
        {"a.en": b"one\ntwo\nthree\n", "a.it": b"uno\ndue\n"},
        ["data.train={source='a.en',target='a.it'}"],
        "a.en has 3 lines, but a.it has 2; expected the same number, "
        "with line n of one the translation of line n of the other\n\nhint: look for a missing, extra or split line",
    ),
    "no such file": (
        {"train.en.gz": gz(b"one\n")},
        ["data.train={source='train.en',target='train.it'}"],
        "train.en does not exist\n\nhint: did you mean 'train.en.gz'?",
    ),
    "an empty file": (
        {"a.tsv": b""},
        ["data.train={tsv='a.tsv'}"],
        "a.tsv is empty; expected at least one line",
    ),
    "a folder instead of a file": (
        {"a.tsv/b": b""},
        ["data.train={tsv='a.tsv'}"],
        "a.tsv is a folder; expected a text file",
    ),
    "gzip by name only": (
        {"a.tsv.gz": b"one\tuno\n"},
        ["data.train={tsv='a.tsv.gz'}"],
        "a.tsv.gz is not gzip, despite its suffix\n\nhint: remove the suffix .gz if it is text",
    ),
    "a gzip that was cut off": (
        {"a.tsv.gz": gz(b"one\tuno\n" * 2000)[:-4]},
        ["data.train={tsv='a.tsv.gz'}"],
        "a.tsv.gz is truncated: its gzip stream ends after line 2000\n\nhint: copy or download it again",
    ),
    "a missing column": (
        {"a.tsv": b"one\tuno\ntwo\n"},
        ["data.train={tsv='a.tsv'}"],
        "a.tsv line 2 has 1 column; expected at least 2, separated by tabs\n\n"
        "hint: check the tabs of that line, or set `columns`, for example columns = [1, 2], counted from 1",
    ),
    "broken JSON": (
        {"a.jsonl": b'{"source": "one", "target": "uno"}\n{"source": \n'},
        ["data.train={jsonl='a.jsonl'}"],
        "a.jsonl line 2 is not JSON: Expecting value\n\nhint: write one JSON object per line, without blank lines",
    ),
    "a missing field": (
        {"a.jsonl": b'{"sorce": "one", "target": "uno"}\n'},
        ["data.train={jsonl='a.jsonl'}"],
        "a.jsonl line 1 has no field 'source'; its fields are: 'sorce', 'target'\n\nhint: did you mean 'sorce'?",
    ),
    "bad UTF-8 when strict": (
        {"a.tsv": b"one\tuno\nt\xffo\tdue\n"},
        ["data.train={tsv='a.tsv'}", "data.strict=true"],
        "a.tsv line 2: byte 2 is not UTF-8\n\nhint: correct the line, or set data.strict = false to count and skip such lines",
    ),
    "a NUL byte when strict": (
        {"a.tsv": b"one\tuno\ntwo\td\0e\n"},
        ["data.train={tsv='a.tsv'}", "data.strict=true"],
        "a.tsv line 2: the text contains a NUL byte\n\n"
        "hint: correct the line, or set data.strict = false to count and skip such lines",
    ),
    "no usable line at all": (
        {"a.tsv": b"\tuno\n\tdue\n"},
        ["data.train={tsv='a.tsv'}"],
        "a.tsv has 2 lines, but no usable pair; 2 lines with an empty side, "
        "the first at a.tsv line 1: the text is empty or white space\n\nhint: check these lines",
    ),
    "Latin-1": (
        {"a.en": b"one\n" * 10, "a.it": b"citt\xe0\n" * 9 + b"uno\n"},
        ["data.train={source='a.en',target='a.it'}"],
        "a.en + a.it: 9 of 10 lines are unusable; expected at most the fraction data.max_unusable = 0.05; "
        "9 lines that are not UTF-8, the first at a.it line 1: byte 5 is not UTF-8\n\n"
        "hint: convert it: iconv -f ISO-8859-1 -t UTF-8 a.it > a.it.utf8; "
        "or set data.max_unusable = 0.9 to skip them",
    ),
    "a header": (
        {"a.tsv": b"en\tit\none\tuno\n"},
        ["data.train={tsv='a.tsv'}"],
        "a.tsv line 1 looks like a header: en, it; expected a sentence pair\n\n"
        "hint: set header = true, next to the file in [data], to skip that line (heed data check: --header), or "
        "header = false to train on it",
    ),
    "standard input": (
        {},
        ["data.train={tsv='-'}"],
        "standard input is a pipe or a device, which can be read only once; expected a file\n\n"
        "hint: save it to a file first: cat … > FILE",
    ),
    "the same text on both sides": (
        {"a.en": b"one\ntwo\n", "a.it": b"one\ntwo\n"},
        ["data.train={source='a.en',target='a.it'}"],
        "a.en and a.it have the same text in all 2 lines; expected a source and its translation\n\n"
        "hint: check the file names; to train a model that copies its input, give both sides in one .tsv file",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_invalid_file_has_its_message(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, overrides, expected = CASES[case]
    recipe = write_recipe(tmp_path)
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith("train =")))
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
    assert heed("train", recipe, *overrides, "--run", tmp_path / "run") == 3
    assert capsys.readouterr().err.endswith(f"error: {expected}\n")


def test_a_run_whose_data_changed_is_not_modified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.steps=2", "--run", run) == 0
    before = digest(run)
    assert before, "the run has files"
    (tmp_path / "pairs.tsv").write_bytes(b"one\tuno\n")
    capsys.readouterr()
    assert heed("train", recipe, "training.steps=4", "--run", run) == 3
    assert capsys.readouterr().err.endswith(
        f"error: {tmp_path / 'pairs.tsv'} changed since the run {run} was started, so it cannot be continued\n\n"
        "hint: restore the data, or train in another folder with --run\n"
    )
    assert digest(run) == before


def test_invalid_lines_are_counted_reported_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    with (tmp_path / "pairs.tsv").open("ab") as file:
        file.write(b"t\xffo\tdue\n\tuno\n")
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "run") == 0
    output = capsys.readouterr().err
    assert "1 line that is not UTF-8, skipped" in output
    assert "pairs.tsv line 61: byte 2 is not UTF-8" in output
    assert "1 line with an empty side, skipped" in output


BOTH_FORMS = {
    "classification": (CLASSIFICATION + GPT, "train.tsv", b"yes\tgood\nno\tbad\n", b"yes\t"),
    "language": (LANGUAGE + GPT, "book.txt", b"the cat sees\na dog runs\n", b""),
}


@pytest.mark.parametrize("task", BOTH_FORMS)
def test_unusable_lines_of_labeled_and_plain_text_follow_the_rule_for_pairs(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, name, good, label = BOTH_FORMS[task]
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(recipe.format(folder="."))
    for file in {name, "valid.tsv", "valid.txt"}:
        Path(file).write_bytes(good * 20)
    Path(name).write_bytes(good * 20 + label + b"citt\xe0\n")
    assert heed("train", "recipe.toml", "training.steps=1", "--run", "run") == 0
    output = capsys.readouterr().err
    assert "1 line that is not UTF-8, skipped" in output
    assert f"{name} line 41: byte {len(label) + 5} is not UTF-8" in output
    Path(name).write_bytes((good + label + b"citt\xe0\n") * 20)
    assert heed("train", "recipe.toml", "training.steps=1", "--run", "other") == 3
    assert (
        capsys.readouterr()
        .err.replace(f"{tmp_path}/", "")
        .endswith(
            f"error: {name}: 20 of 60 lines are unusable; expected at most the fraction data.max_unusable = 0.05; "
            f"20 lines that are not UTF-8, the first at {name} line 3: byte {len(label) + 5} is not UTF-8\n\n"
            f"hint: convert it: iconv -f ISO-8859-1 -t UTF-8 {name} > {name}.utf8; "
            "or set data.max_unusable = 0.334 to skip them\n"
        )
    )
    assert heed("train", "recipe.toml", "training.steps=1", "data.max_unusable=1", "--run", "other") == 0


def digest(folder: Path) -> dict[str, str]:
    """SHA-256 of every file except the lock and the config."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (".lock", "config.toml")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
