"""heed data check: it refuses the same files as training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread

import pytest
from workshop import heed


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{name}{number}\n" for number in range(100)))
    return tmp_path / "a", tmp_path / "b"


def test_files_that_training_would_refuse_are_reported_with_exit_code_3(
    sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("data", "check", *sides) == 0
    with sides[0].open("ab") as source, sides[1].open("ab") as target:
        source.write("é\n".encode("latin-1") * 20)
        target.write(b"e\n" * 20)
    capsys.readouterr()
    assert heed("data", "check", *sides) == 3
    shown = capsys.readouterr()
    assert "20 lines that are not UTF-8, skipped" in shown.out
    assert "20 of 120 lines are unusable" in shown.err and "iconv -f ISO-8859-1" in shown.err
    assert heed("data", "check", *sides, "--json") == 3
    report = json.loads(capsys.readouterr().out)
    assert report["corpora"][0]["unusable"] == 20 / 120 and report["refused"].startswith(str(sides[0]))


def test_a_header_is_refused_or_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\none\teins\n")
    assert heed("data", "check", path) == 3
    capsys.readouterr()
    assert heed("data", "check", path, "--header") == 0
    assert "1 lines, 1 pairs kept" in capsys.readouterr().out


def test_a_fifo_is_checked_in_one_pass(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    fifo = sides[0].with_name("fifo")
    os.mkfifo(fifo)
    Thread(target=fifo.write_bytes, args=(sides[0].read_bytes(),), daemon=True).start()
    assert heed("data", "check", fifo, sides[1]) == 0
    assert "100 lines, 100 pairs kept" in capsys.readouterr().out
