"""What cases of faults are made of: a folder of its own with a tiny recipe, commands run in it, and what was seen.

A case is a function from a Place to what was seen. A command that runs longer than its limit is killed and counts as a hang;
a traceback is never right.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 120  # seconds for one command
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


class Done(NamedTuple):
    """A command that ended."""

    code: int  # negative: ended by that signal
    out: str
    err: str
    seconds: float
    megabytes: int  # the most memory that it held

    @property
    def told(self) -> str:
        """The first line of its complaint, or else the last line that it wrote."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        complaints = [line for line in lines if line.startswith(("error:", "stopped:"))]
        return (complaints or lines[-1:] or ["nothing"])[0]


class Seen(NamedTuple):
    right: bool
    text: str


class Case(NamedTuple):
    name: str
    expected: str
    run: Callable[[Place], Seen]
    needs_root: bool = False


class Place:
    """A folder of a case; `heed` runs the command line in it."""

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

    def trained(self) -> Path:
        """A finished run of the recipe, named `run`."""
        self.recipe()
        return Path(shutil.copytree(trained_run(), self.folder / "run", symlinks=True))

    def heed(self, *arguments: str | Path, limit: float = LIMIT) -> Done:
        return self.finish(self.start(*arguments), limit)

    def shell(self, script: str, limit: float = LIMIT) -> Done:
        """A bash script in which `heed` is the command line."""
        script = f'heed() {{ "{sys.executable}" -m heedful "$@"; }}\n{script}'
        return self.finish(self.spawn(["bash", "-c", script]), limit)

    def start(self, *arguments: str | Path) -> Running:
        return self.spawn([sys.executable, "-m", "heedful", *map(str, arguments)])

    def python(self, program: str, *arguments: str | Path, limit: float = LIMIT) -> Done:
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
        return Running(process, out, err)

    def finish(self, running: Running, limit: float = LIMIT) -> Done:
        return running.finish(limit)


class Running:
    """A command that was started, with all that it starts in its turn."""

    def __init__(self, process: subprocess.Popen[bytes], out: Any, err: Any) -> None:
        self.process, self.out, self.err, self.begun = process, out, err, time.monotonic()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def alive(self) -> bool:
        """Without taking its exit code, which `finish` reads."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait_for(self, ready: Callable[[], bool], limit: float = LIMIT) -> bool:
        """Waits until `ready`, the process's end, or the limit."""
        end = time.monotonic() + limit
        while not ready():
            if not self.alive() or time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def finish(self, limit: float) -> Done:
        pid, ended, usage, status = self.process.pid, 0, None, 0
        while not ended:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended and time.monotonic() - self.begun > limit:
                os.killpg(pid, signal.SIGKILL)
                os.wait4(pid, 0)
                self.process.returncode = -signal.SIGKILL
                raise Hang(limit)
            time.sleep(0.005)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        megabytes = usage.ru_maxrss // 1024 if usage else 0
        out, err = read_from_start(self.out), read_from_start(self.err)
        return Done(self.process.returncode, out, err, time.monotonic() - self.begun, megabytes)


class Hang(Exception):
    def __init__(self, limit: float) -> None:
        super().__init__(f"no end after {limit:.0f} s")


def read_from_start(file: Any) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@cache
def trained_run() -> Path:
    """Trained once, copied for each case."""
    place = Place(Path(tempfile.mkdtemp(prefix="heedful-faults-")))
    done = place.heed("train", place.recipe(), "--run", "run", "--device", "cpu")
    assert done.code == 0, done.err
    return place.folder / "run"


@contextmanager
def new_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="heedful-faults-", ignore_cleanup_errors=True) as name:
        yield Place(Path(name))


def ends(done: Done, *codes: int, says: str = "", also: bool = True) -> Seen:
    """Right if the command ended with one of the codes, wrote `says`, had no traceback, and whatever was compared holds."""
    written = done.out + done.err
    problems = [
        problem
        for problem, found in (
            ("a wrong exit code", done.code not in codes),
            (f"nothing about {says!r}", says not in written),
            ("a traceback", "Traceback" in written or "panicked" in written),
            (f"a comparison failed ({done.seconds:.0f} s, {done.megabytes} MB)", not also),
        )
        if found
    ]
    return Seen(not problems, "; ".join([f"exit {done.code}", *problems, done.told]))


def weights(run: Path) -> str:
    """A hash of the last weights of a run."""
    last = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()[:16]
