"""`heed chat` in a pseudo-terminal, and by lines of standard input."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, run_heed, standard_input, start_heed

import heedful
from heedful.tasks.conversation import Conversation

TIMEOUT = 30.0
LONG = [
    "-s",
    "method=sample",
    *(part for name in ("min_length", "max_length", "max_extra") for part in ("-s", f"{name}=60000")),
]


class Terminal:
    """A pseudo-terminal with `heed chat` in it."""

    def __init__(self, run: Path, *arguments: str) -> None:
        self.main, side = pty.openpty()
        self.resize(24, 80)

        def control() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

        streams: dict[str, Any] = {"stdin": side, "stdout": side, "stderr": side, "start_new_session": True}
        environment = {**os.environ, "TERM": "dumb", "INPUTRC": os.devnull}
        self.process: subprocess.Popen[Any] = start_heed("chat", run, *arguments, before=control, env=environment, **streams)
        os.close(side)
        self.seen = ""
        self.expect("Ctrl-D ends")
        self.expect("> ")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> None:
        content = text.encode()
        while content:
            select.select([], [self.main], [], TIMEOUT)
            content = content[os.write(self.main, content[:512]) :]
            self.read(0.0)

    def read(self, seconds: float) -> bool:
        """Read what is there; False if there is nothing."""
        if not select.select([self.main], [], [], seconds)[0]:
            return False
        try:
            self.seen += os.read(self.main, 65536).decode(errors="replace")
        except OSError:  # closed at the other end
            return False
        return True

    def expect(self, text: str) -> str:
        """Read until the text appears; return what came before it."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-2000:]!r}"
            self.read(0.1)
        before, _, self.seen = self.seen.partition(text)
        return before

    def wait_for_line_editing(self) -> None:
        """Wait until readline reads keys: a Ctrl-C between the prompt and that moment has an effect only at the next key."""
        deadline = time.monotonic() + TIMEOUT
        while termios.tcgetattr(self.main)[3] & termios.ICANON:
            assert time.monotonic() < deadline, "readline does not edit the line"
            time.sleep(0.01)
        time.sleep(0.1)

    def line(self, text: str) -> str:
        """Send a line; return what is shown until the next prompt."""
        self.send(f"{text}\n")
        self.expect("\n")
        self.seen = f"\n{self.seen}"  # an untrained model may reply "<turn> "
        return self.expect("\n> ")

    def close(self) -> int:
        """The exit code."""
        code = self.process.wait(TIMEOUT)
        os.close(self.main)
        return code


@pytest.fixture
def terminal(tiny_runs: dict[str, Path]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(tiny_runs["chat"], *arguments))
        return opened[-1]

    yield open_terminal
    for one in opened:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_a_conversation_with_every_command(
    terminal: Callable[..., Terminal], tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    chat = terminal("-s", "method=greedy")
    conversation = heedful.ChatBot.load(tiny_runs["chat"], precision="fp32").conversation(method="greedy")
    for turn in ("the cat", "a dog"):
        assert chat.line(turn).strip() == conversation.say(turn).text.strip()
    shown = chat.line("/why")
    assert "the cat" in shown and "%" in shown and shown.count("reply:") == 1
    chat.line(f"/save {tmp_path / 'saved.jsonl'}")
    assert json.loads((tmp_path / "saved.jsonl").read_text()) == conversation.to_dict()
    assert "2 turns in the history" in chat.line("/undo")
    assert conversation.undo() and chat.line("a cow").strip() == conversation.say("a cow").text.strip()
    assert "3 candidates" in chat.line("/candidates 3")
    assert len(re.findall(r"^-\d+\.\d{4}\t", chat.line("the dog").replace("\r", ""), re.MULTILINE)) == 3
    assert "the history is empty" in chat.line("/reset")
    assert "there is no turn to undo" in chat.line("/undo")
    assert "temperature 0.5" in chat.line("/temperature 0.5")
    chat.line("the cat")
    listed = chat.line("/help")
    assert all(name in listed for name in ("/reset", "/undo", "/temperature X", "/candidates N", "/save FILE", "/why", "/quit"))
    chat.send("/quit\n")
    assert chat.close() == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/temprature 1", "did you mean /temperature?"),
        ("/temperature hot", "given 'hot', expected a number from 0 to 1000"),
        ("/candidates 0", "given '0', expected an integer from 1 to 100"),
        ("/save", "expected /save FILE"),
        ("/reset now", "expected /reset alone"),
        ("/why", "there is no reply yet to explain"),
    ],
)
def test_a_wrong_command_is_a_message_and_the_conversation_goes_on(
    line: str, message: str, terminal: Callable[..., Terminal]
) -> None:
    chat = terminal()
    assert message in " ".join(chat.line(line).split())
    chat.line("the cat")
    chat.send("\x04")
    assert chat.close() == 0


def test_ctrl_c_ends_the_reply_or_the_line_and_ctrl_d_the_conversation(terminal: Callable[..., Terminal]) -> None:
    chat = terminal(*LONG)
    for _ in range(2):
        chat.send("the cat\n")
        chat.expect("\n")
        assert chat.read(TIMEOUT)  # the reply is being shown
        chat.send("\x03")
        chat.expect("interrupted; this turn is not part of the history")
        chat.expect("> ")
    assert "there is no turn to undo" in chat.line("/undo")
    chat.wait_for_line_editing()
    chat.send("half a line\x03")
    chat.expect("> ")
    chat.resize(40, 30)
    assert "there is no turn to undo" in chat.line("/undo")
    chat.send("\x04")
    assert chat.close() == 0


def test_a_line_of_ten_thousand_characters_and_control_characters_are_harmless(terminal: Callable[..., Terminal]) -> None:
    chat = terminal("-s", "method=greedy", "-s", "max_length=4")
    chat.send("the cat " * 1250 + "\n")
    chat.expect("\n")
    chat.expect("> ")
    chat.resize(10, 20)
    assert "2 turns" in chat.line("/save /dev/null")
    chat.send("\x04")
    assert chat.close() == 0


def test_what_is_shown_of_a_reply_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from heedful.cli.chat import show_part

    for part in ("\x1b]0;ti", "tle\x07\x9b", "31m ok"):
        show_part(part)
    assert capsys.readouterr().out == "\\u001b]0;title\\u0007\\u009b31m ok"


def test_lines_of_standard_input_are_turns_and_an_empty_one_begins_anew(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bot = heedful.ChatBot.load(tiny_runs["chat"], precision="fp32")
    conversation = bot.conversation()
    expected = [conversation.say(turn).to_dict() for turn in ("the cat", "a dog")]
    expected.append(bot.reply(["a cow"]).to_dict())
    capsys.readouterr()
    for options in (["--json"], []):
        with standard_input(b"the cat\na dog\n\na cow\n"):
            assert heed("chat", tiny_runs["chat"], *options) == 0
        lines = capsys.readouterr().out.splitlines()
        assert (list(map(json.loads, lines)) if options else lines) == (
            json.loads(json.dumps(expected)) if options else [one["reply"] for one in expected]
        )


def test_options_of_the_command_are_honored(tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for options in ([], ["--candidates", "2"], ["-s", "method=sample"], ["--precision", "bf16"], ["--checkpoint", "step-2"]):
        capsys.readouterr()
        with standard_input(b"the cat\n"):
            assert heed("chat", tiny_runs["chat"], "--json", *options) == 0
        outputs.append(capsys.readouterr().out)
    assert len(json.loads(outputs[1])["candidates"]) == 2
    assert len(set(outputs[:4])) == 4 and outputs[4] == outputs[0]
    for wrong in (["--candidates", "0"], ["--device", "wrong"], ["-s", "wrong=1"]):
        assert heed("chat", tiny_runs["chat"], *wrong) == 2
    assert heed("chat", tiny_runs["chat"], "--checkpoint", "step-9") == 4


def test_a_line_that_is_not_utf8_is_a_data_error(tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with standard_input(b"the cat\ncaf\xe9\n"):
        assert heed("chat", tiny_runs["chat"]) == 3
    assert "line 2" in capsys.readouterr().err


def test_a_run_that_does_not_reply_is_refused(tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("chat", tiny_runs["translation"]) == 2
    assert "is a run of task 'translation', which does not reply; expected task 'chat'" in capsys.readouterr().err


def test_input_that_ends_is_no_error(tiny_runs: dict[str, Path]) -> None:
    done = run_heed("chat", tiny_runs["chat"], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, "")


def test_anything_that_replies_holds_a_conversation() -> None:
    """Retrieval has stored answers instead of generated ones."""

    class Stored:
        text, candidates, neighbors = "at nine", (), ()

        def to_dict(self) -> dict[str, Any]:
            return {"reply": self.text}

    class Retriever:
        def reply(self, history: Any, **options: Any) -> Stored:
            return Stored()

        def why(self, history: Any, reply: str) -> Any:
            return (list(history), reply)

    conversation: Any = Conversation(Retriever())
    assert conversation.say("when?").text == "at nine"
    assert conversation.why() == (["when?"], "at nine")
    assert conversation.undo() and not conversation.undo() and conversation.turns == []
