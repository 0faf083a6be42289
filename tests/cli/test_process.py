"""How a command ends: failing streams, signals, closed pipes. Each case is a process of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from workshop import run_heed, start, start_heed

import heedful.cli

HEED = [sys.executable, "-m", "heedful"]
LIST = [*HEED, "data", "list"]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line of a shell in which `heed` is ours."""
    script = f'heed() {{ "{sys.executable}" -m heedful "$@"; }}; set -o pipefail; {command}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("heed data list | true", 0, ""),
        ("heed --help | true", 0, ""),
        ("heed data list >/dev/full", 4, "error: standard output cannot be written: No space left on device"),
        ("heed data list >&-", 4, "error: standard output cannot be written: Bad file descriptor"),
        ("heed data list --json >/dev/full", 4, "error: standard output cannot be written: No space left on device"),
        ("heed --help >/dev/full", 4, "error: standard output cannot be written: No space left on device"),
        ("heed no-such-command 2>/dev/full", 2, ""),
        ("heed no-such-command 2>&-", 2, ""),
        ("heed data check - /dev/null <&-", 3, "error: standard input cannot be read: Bad file descriptor"),
        ("PYTHONIOENCODING=ascii heed config show demo training.init=é", 0, ""),
    ],
)
def test_a_failing_stream_is_one_message_and_an_exit_code(command: str, code: int, message: str) -> None:
    done = shell(command)
    assert (done.returncode, done.stderr.splitlines()[:1]) == (code, [message] if message else [])


def test_a_reader_that_stops_after_a_line_ends_the_command_silently() -> None:
    with start_heed("config", "show", "demo", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None and process.stdout.readline()
        process.stdout.close()
        assert (process.wait(timeout=60), process.stderr.read()) == (0, "")


def test_a_closed_stderr_does_not_leak_messages_into_results(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "config.toml").touch()  # a message: the recipe of that name is used
    plain, closed = (run_heed("config", "show", "demo", "--json", cwd=tmp_path, closed=closed) for closed in ((), (2,)))
    assert plain.returncode == closed.returncode == 0
    assert "using the recipe" in plain.stderr
    assert closed.stdout == plain.stdout


def test_a_terminal_never_receives_control_characters_of_the_input() -> None:
    master, slave = pty.openpty()
    missing = [*HEED, "data", "check", "no\x1b]0;title\x07such", "file"]  # the message has the name without quotes
    done = subprocess.run(missing, stdout=slave, stderr=slave, timeout=60, check=False)
    os.close(slave)
    shown = os.read(master, 10_000).decode()
    os.close(master)
    assert done.returncode == 3
    assert "]0;title" in shown
    assert "\x1b" not in shown and "\x07" not in shown


def start_waiting() -> subprocess.Popen[str]:
    """A command that waits; the first line of its output is read."""

    def invoke(arguments: list[str]) -> int:
        print("ready", flush=True)
        time.sleep(30)
        return 0

    def wait() -> None:
        heedful.cli.invoke = invoke
        heedful.cli.main()

    process = start(wait, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_any_command_with_a_message_and_75(number: signal.Signals) -> None:
    process = start_waiting()
    time.sleep(0.05)
    process.send_signal(number)
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 75
    assert messages.startswith("stopped: interrupted")
    assert "Traceback" not in messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ending", ["", "2>&-"])
def test_a_signal_while_the_command_line_is_imported_ends_it_like_a_later_one(
    tmp_path: Path, number: signal.Signals, ending: str
) -> None:
    (tmp_path / "typer.py").write_text(f"import os, time; os.kill(os.getpid(), {int(number)}); time.sleep(20)")
    done = shell(f"PYTHONPATH={tmp_path}:$PYTHONPATH heed data list {ending}")
    assert (done.returncode, done.stdout, done.stderr) == (75, "", "" if ending else "stopped: interrupted\n")


def test_the_installed_command_handles_signals_from_the_start() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"heed": "heedful.__main__:main"}


def test_a_second_signal_right_after_the_first_changes_nothing() -> None:
    """`timeout` signals the process and its group."""
    process = start_waiting()
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 75
    assert messages == "stopped: interrupted\n"
