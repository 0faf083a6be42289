"""heed translate, evaluate and score: standard input, output, and the options of each task."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, standard_input, start_heed, time_limit

SOURCES = ["w1 w2", "w3 w4 w5", "w6"]


@pytest.fixture
def run(tiny_runs: dict[str, Path]) -> Path:
    return tiny_runs["translation"]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert heed(*arguments) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int) -> str:
    capsys.readouterr()
    assert heed(*arguments) == code
    return capsys.readouterr().err


# Standard input


class InteractiveProcess:
    """A `heed translate` process whose standard input stays open."""

    def __init__(self, run: Path) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: subprocess.Popen[bytes] = start_heed("translate", run, **pipes)
        self.input, self.output, self.messages = self.process.stdin, self.process.stdout, self.process.stderr

    def send(self, content: bytes) -> bytes:
        """Write lines to standard input and return the first line of output."""
        assert self.input is not None and self.output is not None
        self.input.write(content)
        self.input.flush()
        return self.output.readline()

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit code and its messages."""
        assert self.messages is not None
        code, messages = self.process.wait(timeout=30), self.messages.read().decode()
        for stream in (self.input, self.output, self.messages):
            if stream is not None:
                stream.close()
        return code, messages


def test_ctrl_c_while_waiting_for_a_line_ends_cleanly(run: Path) -> None:
    heed = InteractiveProcess(run)
    assert heed.send(b"w1 w2\n")
    time.sleep(0.05)
    heed.process.send_signal(signal.SIGINT)
    assert heed.end() == (75, "stopped: interrupted\n")


def test_lines_before_an_invalid_one_are_translated_while_standard_input_stays_open(run: Path) -> None:
    heed = InteractiveProcess(run)
    assert heed.send(b"w1\nw2\nw\xff\nw4\n") and heed.output is not None
    assert len(heed.output.readlines()) == 1
    code, messages = heed.end()
    assert code == 3
    assert messages.startswith("error: standard input line 3: byte 2 is not UTF-8")


def test_a_closed_output_pipe_ends_the_command_silently(run: Path) -> None:
    heed = InteractiveProcess(run)
    assert heed.send(b"w1\n") and heed.output is not None and heed.input is not None
    heed.output.close()
    heed.input.write(b"w2\n")
    heed.input.flush()
    assert heed.end() == (0, "")


def test_a_pipe_is_read_like_a_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["w1 w2", "", "w3"] * 200  # more than one chunk
    expected = output(capsys, "translate", run, write(tmp_path / "in.txt", lines), "-s", "method=greedy")
    assert len(expected.splitlines()) == 600
    end, begin = os.pipe()
    with os.fdopen(begin, "wb") as pipe:
        pipe.write((tmp_path / "in.txt").read_bytes())
    assert output(capsys, "translate", run, f"/dev/fd/{end}", "-s", "method=greedy") == expected
    os.close(end)
    with standard_input((tmp_path / "in.txt").read_bytes()):
        assert output(capsys, "translate", run, "/dev/stdin", "-s", "method=greedy") == expected


def test_a_dash_is_standard_input_in_place_of_any_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(tmp_path / "1.txt", SOURCES[:1]), write(tmp_path / "2.txt", SOURCES[1:])
    whole = write(tmp_path / "whole.txt", SOURCES)
    content = two.read_bytes()
    expected = output(capsys, "translate", run, one, two, one)
    with standard_input(content):
        assert output(capsys, "translate", run, one, "-", one) == expected
    with standard_input(whole.read_bytes()):
        assert output(capsys, "translate", run, whole, "--prefixes", "-").startswith(SOURCES[0])
    options = ("evaluate", run, "--bootstrap", "0", "--reference", whole, "--source")
    expected = output(capsys, *options, whole)
    with standard_input(whole.read_bytes()):
        assert output(capsys, *options, "-") == expected
    expected = output(capsys, "score", run, "--target", whole, "--source", whole)
    with standard_input(whole.read_bytes()):
        assert output(capsys, "score", run, "--target", whole, "--source", "-") == expected
    expected = output(capsys, "align", run, "--target", whole, "--source", whole)
    with standard_input(whole.read_bytes()):
        assert output(capsys, "align", run, "--target", "-", "--source", whole) == expected


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfw1 w2\n", gzip.compress(b"w1 w2\n")], ids=["mark", "gzip"])
def test_standard_input_is_decoded_like_a_file(run: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    with standard_input(content):
        assert heed("translate", run, "--json") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["source"] == "w1 w2" and output.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "{run}", "-", "-"),
        ("translate", "{run}", "--prefixes", "/dev/stdin", "-"),
        ("evaluate", "{run}", "--source", "-", "--reference", "-"),
        ("score", "{run}", "--source", "-", "--target", "/dev/stdin"),
        ("align", "{run}", "--source", "-", "--target", "-"),
    ],
    ids=" ".join,
)
def test_standard_input_given_twice_is_refused(
    run: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = error(capsys, *(one.format(run=run) for one in arguments), code=2)
    assert sentence.startswith("error: standard input is given 2 times")


def test_a_terminal_gets_a_prompt_and_no_control_characters(run: Path) -> None:
    master, slave = pty.openpty()
    process = start_heed("translate", run, "--json", stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    try:
        with time_limit(60):  # without a prompt there is nothing to read
            while b"end with Ctrl-D" not in shown:
                shown += os.read(master, 10_000)
        os.write(master, b"a\x16\x1b]0;title\x07b\xc2\x9b2J\n\x04")  # Ctrl-V: the next byte is text
        with suppress(OSError):  # the other side is closed
            while True:
                shown += os.read(master, 10_000)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        os.close(master)
    answered = shown.split(b"end with Ctrl-D", 1)[1].split(b"\n", 2)[2]  # without the echo of what was typed
    assert b"]0;title" in answered and b"not in the model's vocabulary" in answered
    assert b"\x1b" not in answered and b"\x07" not in answered
    assert b'"source": "' in answered and b"\xc2\x9b" not in answered  # a control character that JSON does not escape


# Output


def test_n_best_yields_the_same_number_of_rows_for_every_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(["w1 w2 w3 w4 w5 w6 w7."] * 60)
    source = write(tmp_path / "in.txt", ["w1 w2", "", long, "w3"])
    rows = output(capsys, "translate", run, source, "-s", "n_best=3", "-s", "max_extra=3").splitlines()
    assert len(rows) == 12
    scores, texts = zip(*(row.split("\t") for row in rows), strict=True)
    assert (scores[3:6], texts[3:6]) == (("0.0000",) * 3, ("",) * 3)
    assert list(map(float, scores[6:9])) == sorted(map(float, scores[6:9]), reverse=True)
    answers = output(capsys, "translate", run, source, "-s", "n_best=3", "-s", "max_extra=3", "--json").splitlines()
    candidates = [one for answer in answers for one in json.loads(answer)["candidates"]]
    assert [(f"{one['score']:.4f}", one["text"]) for one in candidates] == list(zip(scores, texts, strict=True))


@pytest.mark.parametrize(("count", "given"), [(1, "1"), (4, "4")])
def test_another_number_of_prefixes_than_lines_is_refused(
    run: Path, tmp_path: Path, count: int, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, prefixes = write(tmp_path / "in.txt", SOURCES), write(tmp_path / "prefixes.txt", ["w1"] * count)
    capsys.readouterr()
    assert heed("translate", run, source, "--prefixes", prefixes) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"error: --prefixes: {prefixes} has {given} lines for 3 lines; expected one for each line\n"
    with standard_input(source.read_bytes()):
        assert heed("translate", run, "--prefixes", prefixes) == 2
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == min(count, 3)
    assert "expected one for each line" in shown.err


def test_a_very_long_line_is_refused_before_it_is_tokenized(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with standard_input(b"w1 w2 " * 900_000), time_limit(30):
        assert error(capsys, "translate", run, code=3).startswith(
            "error: line 1 has 5,400,000 characters; expected at most 1,000,000"
        )
    assert time.monotonic() - began < 5


# evaluate


def test_an_output_file_is_unchanged_if_evaluation_fails(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    (tmp_path / "out.txt").write_text("old\n")
    monkeypatch.setattr("heedful.tasks.translation.report.evaluate", fails)
    error(capsys, "evaluate", run, "--output", tmp_path / "out.txt", code=6)
    assert (tmp_path / "out.txt").read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--bootstrap", "10"), "bootstrap must be 0 (no interval) or at least 40 resamples, but is 10"),
        (("--metrics", "blue"), "unknown metric 'blue'"),
        (("--tokenize", "14a"), "unknown BLEU tokenizer '14a'"),
        (("--tokenize", "13a", "--metrics", "chrf"), "--tokenize 13a is an option of bleu"),
        (("--source", "a.txt"), "--source and --reference require each other"),
        (("--source", "a.txt", "--reference", "a.txt", "--split", "valid"), "--split selects from the run's data"),
        (("--split", "tset"), "unknown split 'tset'"),
        (("-s", "beem=3"), "beem: unknown key"),
        (("--precision", "fp3"), "unknown precision 'fp3'"),
    ],
    ids=str,
)
def test_invalid_options_of_evaluate_are_refused_before_any_work(
    run: Path,
    options: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("heedful.tasks.translation.report.evaluate", None)
    assert sentence in error(capsys, "evaluate", run, *options, code=2)


@pytest.mark.parametrize("task", ["translation", "language", "classification"])
def test_unknown_values_of_common_options_are_refused_for_every_task(
    tiny_runs: dict[str, Path], task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, code in (("--split", 2), ("--precision", 2), ("--device", 2), ("--checkpoint", 2)):
        assert "wrong" in error(capsys, "evaluate", tiny_runs[task], option, "wrong", code=code)
