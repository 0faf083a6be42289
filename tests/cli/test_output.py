"""Tables fit 80 columns, exit codes are documented, and hints fit the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import heed

from heedful import errors
from heedful.cli.output import print_json, table
from heedful.cli.process import memory_full


def test_a_wide_table_is_wrapped_without_cutting_words() -> None:
    rows = [("name", "first", "second"), ("key", "word " * 30, "other " * 20), ("x" * 30, "", "short")]
    lines = table(rows).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split().count("word") == 30
    assert table([("a", "x" * 100)]) == f"a  {'x' * 100}"
    assert table([("a", "b"), ("1", "2")]) == "a  b\n1  2"


@pytest.mark.parametrize("command", ["recipes", "doctor", "config diff demo multi30k-en-de", "config show search", "data list"])
def test_text_output_fits_80_columns_without_a_terminal(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed(*command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def test_every_exit_code_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HeedfulError)]
    assert {0, *(kind.exit_code for kind in kinds)} == set(errors.EXIT_CODES)
    assert heed("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split())
    for code, meaning in errors.EXIT_CODES.items():
        assert f"{code} {meaning}" in shown
        assert f"{code} {meaning}" in readme


def test_the_hint_on_full_memory_fits_the_command() -> None:
    for command, word in (("train", "data.batch_tokens"), ("translate", "-s beam=1"), ("inspect", "smaller model")):
        full = memory_full(MemoryError(), [command, "x"])
        assert full is not None and full.hint is not None
        assert word in full.hint
        assert ("batch_tokens" in full.hint) == (command == "train")


def test_the_help_explains_where_search_options_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("translate", "evaluate", "generate", "inspect lens", "explain"):
        assert heed(*command.split(), "--help") == 0
        words = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "--search -s NAME=VALUE" in words
        assert "`heed config show search`" in words
    assert heed("config", "show", "search") == 0
    shown = capsys.readouterr().out
    assert all(f"{name} = " in shown for name in ("beam", "length_penalty", "temperature", "top_k", "no_repeat"))


def test_json_has_no_non_finite_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("inf"), "b": [float("nan"), 1.5], "c": {"d": -float("inf")}})
    assert capsys.readouterr().out == '{"a": null, "b": [null, 1.5], "c": {"d": null}}\n'
