"""How a command begins and ends: its streams, its signals, and one message with the documented exit code.

    0 done   1 a bug in heedful   2 usage or config   3 data   4 checkpoint, or a file that cannot be written
    5 diverged   6 memory full   75 interrupted: run it again

Results go to stdout. If stdout fails, so does the command; a reader that leaves early (`| head`) ends it quietly.
Messages go to stderr. If stderr fails, the command goes on without it.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from heedful.errors import HeedfulError, Interrupted, OutOfMemory, WriteError
from heedful.storage.terminal import printable, redirect_to_null
from heedful.storage.writing import write_error

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOGETHER = 1.0  # seconds: shells and `timeout` signal a process and its group, which arrives as two signals


def run_command(command: Callable[[], int], arguments: list[str]) -> int:
    """Runs a command and returns its exit code; every failure becomes one message."""
    try:
        code = command()
        sys.stdout.flush()
    except BaseException as error:
        code = report(error, arguments)
    for stream in (sys.stdout, sys.stderr):  # the interpreter flushes both at its end, and would fail again
        try:
            stream.flush()
        except (OSError, ValueError):
            redirect_to_null(stream)
    return code


def prepare_process() -> None:
    """What a process does before its command: standard streams and signals."""
    open_streams()
    logging.basicConfig(handlers=[Messages()], format="%(message)s")
    interrupt = interrupt_handler()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP, and so do we
            signal.signal(number, interrupt)


def ignore_signals() -> None:
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Messages(logging.Handler):
    """Warnings that the package logs, as messages of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(self.format(record))


def interrupt_handler() -> Callable[[int, FrameType | None], None]:
    """A handler whose first signal lets the command clean up; a later one ends the process at once."""
    first: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > TOGETHER:
            os._exit(Interrupted.exit_code)

    return interrupt


def open_streams() -> None:
    """Makes all three standard streams usable.

    A closed one is opened on /dev/null, otherwise the next file would take its number and receive our messages; reading
    or writing results there fails. Piped text is UTF-8 whatever the locale; a terminal of another encoding shows codes."""
    closed = ((0, "stdin", "r", os.O_WRONLY), (1, "stdout", "w", os.O_RDONLY), (2, "stderr", "w", os.O_WRONLY))
    for number, name, mode, flags in closed:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace", newline="\n")


def report(error: BaseException, arguments: list[str]) -> int:
    """The message of an error, on stderr and for --json on stdout too; returns the exit code."""
    if isinstance(error, SystemExit):
        if isinstance(error.__context__, BrokenPipeError):  # rich ends the process when the reader of the help has left
            return 0
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, HeedfulError):
        return complain(str(error.args[0]), error.hint, error.exit_code, arguments)
    if isinstance(error, KeyboardInterrupt):
        return complain("interrupted", None, Interrupted.exit_code, arguments)
    if isinstance(error, BrokenPipeError):
        return 0  # the reader of our output has left
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EBADF) and error.filename is None:
        return complain(f"standard output cannot be written: {error.strerror}", None, WriteError.exit_code, arguments)
    if full := memory_full(error, arguments):
        return complain(str(full.args[0]), full.hint, full.exit_code, arguments)
    print_message("".join(traceback.format_exception(error)).rstrip())
    return complain("this is a bug in heedful, not in what you did", "please report it with the lines above", 1, arguments)


def memory_full(error: BaseException, arguments: list[str]) -> OutOfMemory | None:
    """The message for memory that ran out. torch is not imported: commands that do without it start sooner."""
    if type(error).__name__ == "OutOfMemoryError":
        reason = str(error).removeprefix("CUDA out of memory. ").split(". ")[0]
        return OutOfMemory(
            f"the GPU's memory is full: {reason}",
            hint=f"nvidia-smi shows who else uses it; {memory_advice(arguments)}",
        )
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return OutOfMemory("the machine's memory is full", hint=memory_advice(arguments))
    return None


def memory_advice(arguments: list[str]) -> str:
    """What needs less memory, for this command."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command in ("train", "sweep", "demo"):
        return "smaller batches (data.batch_tokens or data.batch), training.recompute=true or a smaller model need less"
    if command in ("translate", "evaluate", "score", "generate"):
        return "shorter sentences, a smaller beam (-s beam=1) or a smaller search.max_length (-s max_length=100) need less"
    return "a smaller model, or less data at a time, needs less"


def complain(message: str, hint: str | None, code: int, arguments: list[str]) -> int:
    print_message(f"{'stopped' if code == Interrupted.exit_code else 'error'}: {message}")
    if hint:
        print_message(f"\nhint: {hint}")
    if "--json" in arguments:
        try:
            print_text(json.dumps({"error": message, "hint": hint, "exit_code": code}, ensure_ascii=False))
        except (OSError, WriteError):
            redirect_to_null(sys.stdout)
    return code


def print_message(text: str) -> None:
    """A message to the user on stderr. Text from data is made harmless; a stderr that fails is given up."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        redirect_to_null(sys.stderr)


def print_text(text: str) -> None:
    """A result on stdout: as it is in a pipe or file, with control characters made visible on a terminal."""
    try:
        print(printable(text) if sys.stdout.isatty() else text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error("standard output", error) from error
