"""Texts that are no characters: halves of surrogate pairs in JSON, bytes of the command line that are not UTF-8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import heed, write_recipe

ESCAPE = "the text contains \\ud800, half of a surrogate pair and no character"


@pytest.mark.parametrize(
    ("side", "record"), [("source", {"source": "a \ud800", "target": "c"}), ("target", {"source": "a", "target": "c \ud800"})]
)
def test_an_escape_in_json_is_named_and_no_conversion_is_advised(
    side: str, record: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(record) + "\n" + json.dumps({"source": "one", "target": "uno"}) + "\n")
    assert heed("data", "check", file) == 3  # more than 5 % of the lines
    shown = "".join(capsys.readouterr())
    assert "\\ud800" in file.read_text()
    assert f"{file} line 1: {ESCAPE}" in shown
    assert "1 line with half of a surrogate pair" in shown
    assert "iconv" not in shown and "UTF-8" not in shown


def test_a_strict_run_names_the_line_of_the_escape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"source": "one \\udc00", "target": "uno"}\n')
    changes = [f"data.train={{jsonl='{file}'}}", "data.strict=true"]
    assert heed("train", write_recipe(tmp_path), *changes, "--run", tmp_path / "run") == 3
    assert capsys.readouterr().err.splitlines()[-3] == f"error: {file} line 1: {ESCAPE.replace('d800', 'dc00')}"


def test_null_is_called_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"source": "one", "target": null}\n')
    assert heed("data", "check", file) == 3
    assert capsys.readouterr().err.startswith(f"error: {file} line 1: field 'target' is null; expected a string")


def test_a_byte_of_the_command_line_that_is_not_utf8_is_named(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = b"the \xff".decode("utf-8", "surrogateescape")  # as Python decodes the command line
    assert heed("generate", tiny_runs["language"], "--prompt", prompt, "--length", "2") == 3
    message = "text 1 contains the byte 0xff, which is not UTF-8; expected text in UTF-8"
    assert capsys.readouterr().err.splitlines()[-3] == f"error: {message}"
