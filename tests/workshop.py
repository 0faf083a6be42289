"""Helpers for tests of whole runs: a corpus of reversed sentences, a tiny recipe, and the command line in this process or in
a child process."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import random
import signal
import struct
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import torch
import typer

from heedful.__main__ import main
from heedful.cli import app, run

WORDS = [f"w{i}" for i in range(20)]

RECIPE = """\
[data]
train = {{ tsv = "{data}" }}
valid = {{ tsv = "{data}" }}
test = {{ tsv = "{data}" }}
batch_tokens = 128

[tokenizer]
kind = "words"
min_frequency = 1

[model]
dim = 16
layers = 2
heads = 2
feed_forward = 32
norm = "pre"

[task]
validation_sentences = 4

[search]
max_extra = 3

[training]
steps = 6
save_every = 2
validate_every = 3
report_every = 1
"""


def reversed_pairs(count: int, seed: int) -> str:
    """Sentences and their reverse, separated by a tab."""
    generator = random.Random(seed)
    sentences = [[generator.choice(WORDS) for _ in range(generator.randint(2, 8))] for _ in range(count)]
    return "".join(f"{' '.join(s)}\t{' '.join(reversed(s))}\n" for s in sentences)


def write_pairs(path: Path, count: int = 60, seed: int = 1) -> Path:
    """Write a file of reversed sentences."""
    path.write_text(reversed_pairs(count, seed))
    return path


def write_recipe(folder: Path, extra: str = "") -> Path:
    data = write_pairs(folder / "pairs.tsv")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data) + extra)
    return recipe


def every_command(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and subcommand: its words on the command line, and the command."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*path, name))


def heed(*arguments: str | Path) -> int:
    """Run a command and return its exit code."""
    return run([str(argument) for argument in arguments])


def start_heed(
    *arguments: str | bytes | Path, closed: tuple[int, ...] = (), before: Callable[[], object] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start `heed` in a child process; closed: numbers of its closed standard streams; before: called in it first.

    It is a process of its own, with the streams, signals and exit codes of `python -m heedful`. It is forked from this one, so
    that it does not spend two seconds on importing torch. Tests of the start of a command start `python -m heedful` instead."""

    def prepare() -> None:
        for number in closed:
            os.close(number)
        if before is not None:
            before()

    def command() -> None:
        sys.argv = ["heed", *map(os.fsdecode, arguments)]
        prepare()
        main()

    if torch.cuda.is_available():  # CUDA and autograd do not work in a forked process
        return subprocess.Popen([sys.executable, "-m", "heedful", *arguments], preexec_fn=prepare, **options)
    return start(command, **options, closed=closed)


def run_heed(*arguments: str | bytes | Path, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run `heed` in a child process and capture its output, like subprocess.run."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_heed(*arguments, **streams | options) as process:
        try:
            output, messages = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(["heed", *arguments], process.returncode, output, messages)


def start(
    function: Callable[[], object], *, closed: tuple[int, ...] = (), env: dict[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Call a function in a forked child process, which is otherwise as subprocess.Popen starts one with these options."""

    def child() -> None:
        """Called where Popen would start another program: streams, folder and process group are set."""
        code = 1
        try:
            reset_interpreter(closed, os.environ.copy() if env is None else env)
            function()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:
                        stream.flush()
            except (OSError, ValueError):
                code = 120  # as Python exits if it cannot flush them
            os._exit(code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads: the child needs none of their locks
        return subprocess.Popen(["heed"], preexec_fn=child, restore_signals=False, **options)


def reset_interpreter(closed: tuple[int, ...], env: dict[str, str]) -> None:
    """Make this forked process like one that has just started: streams, signals, environment, logging, warnings.

    Other open files become /dev/null: they keep their numbers, because their objects may still close them."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if number > 2 and number != null:
            os.dup2(null, number, inheritable=False)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        errors = "backslashreplace" if number == 2 else "strict"
        buffering = 1 if number == 2 or (number not in closed and os.isatty(number)) else -1
        stream = os.fdopen(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, None if number in closed else stream)
    for signal_number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(signal_number) not in (signal.SIG_IGN, signal.SIG_DFL, None):
            signal.signal(signal_number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.clear()
    os.environ.update(env)
    logging.root.handlers.clear()
    warnings.resetwarnings()
    for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", ignored)
    warnings.showwarning = show_warning  # type: ignore[assignment]  # pytest has replaced it
    gc.enable()  # Popen disables it before it calls this


def show_warning(message: Any, category: Any, filename: str, line: int, file: Any = None, text: str | None = None) -> None:
    print(warnings.formatwarning(message, category, filename, line, text), end="", file=sys.stderr)


GPT = """\
[tokenizer]
kind = "words"
min_frequency = 1

[model]
family = "gpt"
dim = 16
layers = 1
heads = 2

[training]
steps = 2
"""

LANGUAGE = """\
[data]
form = "text"
train = {{ file = "{folder}/book.txt" }}
valid = {{ file = "{folder}/valid.txt" }}
test = {{ file = "{folder}/book.txt" }}
block = 16
batch = 4

[task]
name = "language"
samples = 0

[search]
method = "sample"

"""

CLASSIFICATION = """\
[data]
form = "labeled"
folder = "{folder}"
batch = 8

[task]
name = "classification"
labels = ["no", "yes"]

"""


@contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Replace the standard input of this process by `content`."""
    with TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        saved = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(saved, 0)
            os.close(saved)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after this time, so that a test of what might wait forever fails instead."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not finished within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER = 1, 2, 3  # capabilities(7): root ignores the permissions of files
CAPABILITIES_VERSION = 0x20080522


@contextmanager
def obeying_permissions() -> Iterator[None]:
    """Let the permissions of files apply to root as to any other user, in this thread."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    saved, reduced = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()  # twice (effective, permitted, inheritable)
    if libc.capget(header, saved) != 0:
        pytest.skip("capabilities cannot be read")
    for at, word in enumerate(saved):
        reduced[at] = word
    for number in (DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER):
        reduced[0] &= ~(1 << number)
    assert libc.capset(header, reduced) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(header, saved) == 0, os.strerror(ctypes.get_errno())


def snapshot(folder: Path) -> dict[str, str]:
    """The content of every file below a folder, except locks; what cannot be read is listed by name."""
    content = {}
    for path in sorted(folder.rglob("*")):
        if path.name != ".lock":
            content[str(path.relative_to(folder))] = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return content


def write_idx(folder: Path, size: tuple[int, int], labels: int, count: int = 100) -> None:
    """Random images and labels in the files of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "t10k"):
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, *size)
        images = random.Random(split).randbytes(count * size[0] * size[1])
        (folder / f"{split}-images-idx3-ubyte").write_bytes(header + images)
        numbers = bytes(number % labels for number in range(count))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", count) + numbers)
