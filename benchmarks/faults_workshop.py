"""Parts of fault cases: a folder with a tiny recipe, commands that run in it, and their outcome.

A case is a function from a Sandbox to an Outcome. A command that exceeds its time limit is killed and counts as a hang; a
traceback always counts as a failure. A fault inside a command is injected into a forked child process: `fault` replaces
functions there, so that the package needs no code for it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 300  # seconds for one command
WORDS = [f"w{i}" for i in range(20)]
STEPS = 40
RECIPE = """
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

[task]
validation_sentences = 4

[training]
steps = {steps}
save_every = 5
validate_every = 20
report_every = 1
threads = 1
"""


class Finished(NamedTuple):
    """A finished command."""

    code: int  # negative: killed by that signal
    out: str
    err: str
    seconds: float
    megabytes: int  # peak memory

    @property
    def message_line(self) -> str:
        """The first error line, or else, after success, the last line of output."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip() and not line.startswith("step ")]
        errors = [line for line in lines if line.startswith(("error:", "stopped:"))]
        return (errors or (lines[-1:] if self.code == 0 else []) or ["no message"])[0]


class Outcome(NamedTuple):
    right: bool
    text: str


class Case(NamedTuple):
    number: int  # of the fault in faults_list.py
    name: str
    expected: str
    run: Callable[[Sandbox], Outcome]
    needs_root: bool = False
    prepare: Callable[[], object] | None = None  # called once for all cases that have it, before the first; None: trained_run


class Sandbox:
    """The folder of a case; `heed` runs the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = os.environ | {
            "PYTHONPATH": path,
            "HEED_CACHE": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "200",
        }

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def recipe(self, steps: int = STEPS) -> Path:
        """A reversing task; source.txt and target.txt are its sides."""
        draw = random.Random(1)
        sentences = [[draw.choice(WORDS) for _ in range(draw.randint(2, 8))] for _ in range(60)]
        sides = [" ".join(s) for s in sentences], [" ".join(reversed(s)) for s in sentences]
        self.write("source.txt", "".join(f"{line}\n" for line in sides[0]))
        self.write("target.txt", "".join(f"{line}\n" for line in sides[1]))
        data = self.write("pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True)))
        return self.write("recipe.toml", RECIPE.format(data=data, steps=steps))

    def trained_run_copy(self) -> Path:
        """A finished run of the recipe, named `run`."""
        self.recipe()
        return Path(shutil.copytree(trained_run(), self.folder / "run", symlinks=True))

    def heed(self, *arguments: str | Path, limit: float = LIMIT) -> Finished:
        return self.finish(self.start(*arguments), limit)

    def shell(self, script: str, limit: float = LIMIT) -> Finished:
        """A bash script in which `heed` is the command line."""
        script = f'PYTHON="{sys.executable}"; heed() {{ "$PYTHON" -m heedful "$@"; }}\n{script}'
        return self.finish(self.spawn(["bash", "-c", script]), limit)

    def start(self, *arguments: str | Path) -> Running:
        return self.fork(no_fault, *arguments)

    def python(self, program: str, *arguments: str | Path, limit: float = LIMIT) -> Finished:
        return self.finish(self.spawn([sys.executable, "-c", program, *map(str, arguments)]), limit)

    def spawn(self, command: Sequence[str]) -> Running:
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        return Running(process.pid, out, err, process)

    def fork(self, fault: Callable[[], object], *arguments: str | Path) -> Running:
        """Start `heed` in a forked child, after fault() was called in it. It needs no seconds to import torch."""
        preload()
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return Running(pid, out, err)
        code = 1
        try:
            os.setsid()
            os.chdir(self.folder)
            for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno())):
                os.dup2(stream, number)
            os.environ.clear()
            os.environ.update(self.environment)
            sys.argv = ["heed", *map(str, arguments)]
            fault()
            code = main()
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError):  # a stream that is full or closed
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def injected(self, fault: Callable[[], object], *arguments: str | Path, limit: float = LIMIT) -> Finished:
        """Run `heed` in a forked child with a fault."""
        return self.finish(self.fork(fault, *arguments), limit)

    def plain(self, text: str) -> str:
        """A text without what differs from machine to machine: the folder, ids of processes, the name of the machine."""
        text = text.replace(f"{self.folder}/", "").replace(str(self.folder), ".")
        text = re.sub(r"/tmp/heedful-faults-\w+/", "", text).replace(f" on {platform.node()}", " on HOST")
        return re.sub(r"(\bprocess |-)\d{2,}(?= on HOST|-[0-9a-f]{8}\b)", r"\1N", text)

    def finish(self, running: Running, limit: float = LIMIT) -> Finished:
        return running.finish(limit)


class Running:
    """A running command and its child processes."""

    def __init__(self, pid: int, out: Any, err: Any, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid, self.out, self.err, self.process, self.started = pid, out, err, process, time.monotonic()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def alive(self) -> bool:
        """Whether it runs; does not consume the exit code, which `finish` reads."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait_for(self, ready: Callable[[], bool], limit: float = LIMIT) -> bool:
        """Wait until `ready`, the end of the process, or the limit; return whether it is ready."""
        end = time.monotonic() + limit
        while not ready():
            if not self.alive() or time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def finish(self, limit: float) -> Finished:
        pid, ended, usage, status = self.pid, 0, None, 0
        while not ended:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended and time.monotonic() - self.started > limit:
                os.killpg(pid, signal.SIGKILL)
                os.wait4(pid, 0)
                self.set_code(-signal.SIGKILL)
                raise Hang(limit)
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(status)
        self.set_code(code)
        megabytes = usage.ru_maxrss // 1024 if usage else 0
        out, err = read_from_start(self.out), read_from_start(self.err)
        return Finished(code, out, err, time.monotonic() - self.started, megabytes)

    def set_code(self, code: int) -> None:
        """Tell Popen, which would otherwise wait for the process."""
        if self.process is not None:
            self.process.returncode = code


class Hang(Exception):
    def __init__(self, limit: float) -> None:
        super().__init__(f"did not finish within {limit:.0f} s")


def read_from_start(file: Any) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@cache
def preload() -> None:
    """Import what a training run imports. torch computes nothing here: its threads would not survive a fork."""

    import torch._dynamo  # by the first optimizer: a second in every child process that imports it by itself
    import torch.distributed.fsdp  # noqa: F401

    import heedful.cli
    import heedful.runs.train  # noqa: F401


def main() -> int:
    """The command line in this process."""
    from heedful.cli import main

    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def patch(owner: Any, name: str, value: Any) -> Any:
    """Replace an attribute of a class or module and return the old one; called in a child process."""
    own = getattr(owner, name)
    setattr(owner, name, value)
    return own


def no_fault() -> None:
    pass


@cache
def trained_run() -> Path:
    """A run that is trained once and copied for each case."""
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="heedful-faults-")))
    atexit.register(shutil.rmtree, sandbox.folder, ignore_errors=True)
    done = sandbox.heed("train", sandbox.recipe(), "--run", "run", "--device", "cpu")
    assert done.code == 0, done.err
    return sandbox.folder / "run"


@contextmanager
def new_sandbox() -> Iterator[Sandbox]:
    with tempfile.TemporaryDirectory(prefix="heedful-faults-", ignore_cleanup_errors=True) as name:
        yield Sandbox(Path(name))


def expect(done: Finished, *codes: int, message: str = "", also: bool = True) -> Outcome:
    """Right if the command exited with one of the codes, wrote the message and no traceback, and `also` is true."""
    written = done.out + done.err
    problems = [
        problem
        for problem, applies in (
            ("a wrong exit code", done.code not in codes),
            (f"no message {message!r}", message not in written),
            ("a traceback", "Traceback" in written or "panicked" in written),
            (f"a comparison failed ({done.seconds:.0f} s, {done.megabytes} MB)", not also),
        )
        if applies
    ]
    return Outcome(not problems, "; ".join([f"exit {done.code}", *problems, done.message_line]))


def last_step(run: Path) -> int:
    """The newest step with a checkpoint; 0 if there is none."""
    names = [path.name.removeprefix("step-") for path in (run / "checkpoints").glob("step-*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def weights(run: Path) -> str:
    """A hash of the last weights of a run, and of its optimizer."""
    files = sorted((run / "checkpoints" / f"step-{last_step(run)}").glob("*.safetensors"))
    assert len(files) >= 2, f"{run} has a checkpoint with model and optimizer"
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
