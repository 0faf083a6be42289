"""Helpers for tests of whole runs: a corpus of reversed sentences, a tiny recipe, and the command line in this process."""

from __future__ import annotations

import ctypes
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import typer

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
