"""Start and end of a command: standard streams, signals, and one message with a documented exit code.

    0 success   1 a bug in heedful   2 usage or config   3 data   4 checkpoint, or a file that cannot be written
    5 diverged   6 memory full   7 another process of the run ended   75 interrupted: run it again

Results go to stdout. If stdout fails, the command fails; a reader that closes the pipe early (`| head`) ends it silently.
Messages go to stderr. If stderr fails, the command continues without it.
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

from heedful.errors import CheckpointError, DivergedError, HeedfulError, Interrupted, OutOfMemory, RankLost, WriteError
from heedful.storage.terminal import printable, redirect_to_null
from heedful.storage.writing import write_error
from heedful.tasks import TASKS, find_command

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOGETHER = 1.0  # seconds: shells and `timeout` signal a process and its group, so that one signal arrives twice


def run_command(command: Callable[[], int], arguments: list[str]) -> int:
    """Run a command and return its exit code; every failure is one message."""
    try:
        code = command()
        sys.stdout.flush()
    except BaseException as error:
        code = report(error, arguments)
    for stream in (sys.stdout, sys.stderr):  # the interpreter flushes both at exit and would fail again
        try:
            stream.flush()
        except (OSError, ValueError):
            redirect_to_null(stream)
    return code


def prepare_process() -> None:
    """Set up standard streams, logging and signal handlers."""
    open_streams()
    logging.basicConfig(handlers=[Messages()], format="%(message)s")
    interrupt = interrupt_handler()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # keep SIGHUP ignored under nohup
            signal.signal(number, interrupt)


def ignore_signals() -> None:
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Messages(logging.Handler):
    """Prints the warnings that the package logs as messages of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(self.format(record))


def interrupt_handler() -> Callable[[int, FrameType | None], None]:
    """A signal handler: the first signal lets the command clean up, a later one ends the process at once."""
    first: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > TOGETHER:
            os._exit(Interrupted.exit_code)

    return interrupt


def open_streams() -> None:
    """Make all three standard streams usable.

    A closed one is opened on /dev/null, otherwise the next opened file would get its number and receive messages; reading
    from it or writing results to it fails. Pipes are UTF-8 in every locale; terminals of other encodings show escapes."""
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
    """Print the message of an error, to stderr and with --json also to stdout; return the exit code."""
    if isinstance(error, SystemExit):
        if isinstance(error.__context__, BrokenPipeError):  # rich exits if the reader of the help closes the pipe
            return 0
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, HeedfulError) and is_repeated(error):
        return error.exit_code
    if isinstance(error, HeedfulError):
        return print_error(str(error.args[0]), error.hint, error.exit_code, arguments)
    if isinstance(error, KeyboardInterrupt):
        return print_error("interrupted", None, Interrupted.exit_code, arguments)
    if isinstance(error, BrokenPipeError):
        return 0  # the reader closed the pipe
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EBADF) and error.filename is None:
        return print_error(f"standard output cannot be written: {error.strerror}", None, WriteError.exit_code, arguments)
    if isinstance(error, PermissionError) and error.filename is not None:
        message = f"{os.fsdecode(error.filename)} cannot be read or written: {error.strerror}"
        return print_error(message, "check the permissions of the file and its folders", CheckpointError.exit_code, arguments)
    if full := memory_full(error, arguments):
        return print_error(str(full.args[0]), full.hint, full.exit_code, arguments)
    if failed := gpu_failed(error):
        return print_error(str(failed.args[0]), failed.hint, failed.exit_code, arguments)
    print_message("".join(traceback.format_exception(error)).rstrip())
    return print_error("this is a bug in heedful", "report it with the traceback above", 1, arguments)


def is_repeated(error: BaseException) -> bool:
    """Whether another process of a distributed run prints this error, or its cause."""
    rank = os.environ.get("RANK")
    if isinstance(error, RankLost):  # runs/processes.py says which process was killed; torchrun only lists exit codes
        return rank is not None and (rank != "0" or "TORCHELASTIC_RUN_ID" not in os.environ)
    return isinstance(error, DivergedError | Interrupted) and rank not in (None, "0")


def memory_full(error: BaseException, arguments: list[str]) -> OutOfMemory | None:
    """The error for exhausted memory, if this is one. torch is not imported, because not every command needs it."""
    if type(error).__name__ == "OutOfMemoryError":
        reason = str(error).removeprefix("CUDA out of memory. ").split(". ")[0]
        return OutOfMemory(
            f"the GPU's memory is full: {reason}",
            hint=f"{memory_advice(arguments)}; list other processes on the GPU with nvidia-smi",
        )
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return OutOfMemory("the machine's memory is full", hint=memory_advice(arguments))
    return None


def gpu_failed(error: BaseException) -> Interrupted | None:
    """The error for a GPU that failed (lost, uncorrectable memory error), if this is one; a run continues on another GPU."""
    if type(error).__name__ != "AcceleratorError" and not str(error).startswith("CUDA error: "):
        return None
    reason = str(error).partition("\n")[0].removeprefix("CUDA error: ")
    return Interrupted(
        f"the GPU failed: {reason}",
        hint="run the same command again: training continues from its last checkpoint; if it fails again, check the GPU with "
        "nvidia-smi and choose another one with CUDA_VISIBLE_DEVICES",
    )


def memory_advice(arguments: list[str]) -> str:
    """How this command can use less memory."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command in ("train", "sweep", "demo"):
        return "reduce data.batch_tokens or data.batch, set training.recompute=true, or use a smaller model"
    if command in ("predict", "evaluate", "score", *(one.name for one in map(find_command, TASKS) if one.search)):
        return "use shorter sentences, a smaller beam (-s beam=1) or a smaller search.max_length (-s max_length=100)"
    return "use a smaller model or less data at a time"


def print_error(message: str, hint: str | None, code: int, arguments: list[str]) -> int:
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
    """Print a message to stderr. Control characters are escaped; a stderr that fails is silenced."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        redirect_to_null(sys.stderr)


def print_text(text: str) -> None:
    """Print a result to stdout: unchanged into a pipe or file, with control characters escaped on a terminal."""
    try:
        print(printable(text) if sys.stdout.isatty() else text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error("standard output", error) from error
