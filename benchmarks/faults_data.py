"""Data faults: pipes, encodings, very long lines and words, files that change while they are in use."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from faults_workshop import Case, Outcome, Sandbox, expect, no_fault, weights

MEMORY = 1500  # megabytes that training with one very long line may use


def translate_pipe(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("heed translate run <(head -3 source.txt) --device cpu")
    return expect(done, 0, also=done.out.count("\n") == 3)


def translate_stdin_by_name(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("cat source.txt | heed translate run /dev/stdin --device cpu")
    return expect(done, 0, also=done.out.count("\n") == 60)


def evaluate_pipes(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    options = "--json --bootstrap 0 --device cpu"
    files = sandbox.shell(f"heed evaluate run --source source.txt --reference target.txt {options}")
    pipes = sandbox.shell(f"heed evaluate run --source <(cat source.txt) --reference <(cat target.txt) {options}")
    return expect(pipes, 0, also=files.out == pipes.out and files.code == 0)


def check_pipes(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    return expect(sandbox.shell("heed data check <(cat source.txt) <(cat target.txt)"), 0, message="60 pairs kept")


def check_fifo(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    return expect(sandbox.shell("mkfifo f; cat source.txt > f & heed data check f target.txt"), 0, message="60 pairs kept")


def train_fifo(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    script = """mkfifo f; cat pairs.tsv > f & feeder=$!
heed train recipe.toml "data.train={tsv='f'}" --run run --device cpu; code=$?; kill $feeder; exit $code"""
    return expect(sandbox.shell(script), 3, message="can be read only once")


def train_encoded(sandbox: Sandbox, encoding: str, message: str) -> Outcome:
    recipe = sandbox.recipe()
    text = "".join(f"größer schöner Öl {number}\tdas Bärchen mag Süßes {number}\n" for number in range(200))
    sandbox.write("other.tsv", text.encode(encoding))
    return expect(sandbox.heed("train", recipe, "data.train={tsv='other.tsv'}", "--run", "run"), 3, message=message)


def train_latin1(sandbox: Sandbox) -> Outcome:
    return train_encoded(sandbox, "latin-1", "iconv -f ISO-8859-1 -t UTF-8 other.tsv")


def train_utf16(sandbox: Sandbox) -> Outcome:
    return train_encoded(sandbox, "utf-16", "iconv -f UTF-16 -t UTF-8 other.tsv")


def long_line(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    with (sandbox.folder / "pairs.tsv").open("a") as file:
        file.write("w1 w2 " * 4_000_000 + "\t" + "w2 w1 " * 4_000_000 + "\n")
    done = sandbox.heed("train", recipe, "training.steps=2", "--run", "run", "--device", "cpu", limit=300)
    return expect(done, 0, message="too long", also=done.megabytes < MEMORY)


def gzip_bomb(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    with gzip.open(sandbox.folder / "other.tsv.gz", "wb", compresslevel=1) as file:
        for _ in range(2048):
            file.write(bytes(1 << 20))
    done = sandbox.injected(no_fault, "train", recipe, "data.train={tsv='other.tsv.gz'}", "--run", "run", "--device", "cpu")
    return expect(done, 3, message="error: ", also=done.megabytes < MEMORY)


def long_word(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    with (sandbox.folder / "pairs.tsv").open("a") as file:
        file.write("abcdefghij" * 40_000 + "\t" + "jihgfedcba" * 40_000 + "\n")
    overrides = ["tokenizer.kind=bpe", "tokenizer.vocab=100", "training.steps=2"]
    return expect(sandbox.heed("train", recipe, *overrides, "--run", "run", "--device", "cpu", limit=60), 0)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:700])


def change_a_word(path: Path) -> None:
    path.write_text(path.read_text().replace("w1 ", "w2 ", 1))


def reorder(path: Path) -> None:
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


def changed_data(change: Callable[[Path], object], sandbox: Sandbox) -> Outcome:
    """After the first checkpoint. The run has its own copy; to continue it later, the data must be as before."""
    recipe, data = sandbox.recipe(), sandbox.folder / "pairs.tsv"
    original = data.read_bytes()
    running = sandbox.fork(no_fault, "train", recipe, "--run", "run", "--device", "cpu")
    saved = running.wait_for(lambda: (sandbox.folder / "run/checkpoints/step-5/MANIFEST.json").exists())
    change(data)
    running.send(signal.SIGTERM)
    stopped = sandbox.finish(running)
    again = sandbox.injected(no_fault, "train", "run", "--device", "cpu")
    data.write_bytes(original)
    done = sandbox.injected(no_fault, "train", "run", "--device", "cpu")
    whole = sandbox.injected(no_fault, "train", recipe, "--run", "whole", "--device", "cpu")
    same = weights(sandbox.folder / "run") == weights(sandbox.folder / "whole")
    return expect(again, 3, message="pairs.tsv", also=saved and stopped.code == 75 and same and done.code == whole.code == 0)


def killed_worker(sandbox: Sandbox) -> Outcome:
    """A process that encodes a shard is killed; the store is compared with one of a run without a kill."""
    recipe = sandbox.recipe()
    sandbox.write("many.tsv", "".join(f"w{number % 20} w{number % 17}\tw{number % 13}\n" for number in range(150_000)))
    arguments = ("train", recipe, "data.train={tsv='many.tsv'}", "training.steps=2", "--device", "cpu", "--run")
    running = sandbox.fork(no_fault, *arguments, "run")
    workers: list[str] = []

    def is_encoding() -> bool:
        tasks = Path(f"/proc/{running.pid}/task").glob("*/children")
        workers[:] = [child for task in tasks for child in task.read_text().split()]
        return any((sandbox.folder / "cache/tokens").glob("*.shards/.tmp-*"))

    began = running.wait_for(is_encoding) and bool(workers)
    os.kill(int(workers[0]), signal.SIGKILL)
    done = sandbox.finish(running)
    sandbox.environment["HEED_CACHE"] = str(sandbox.folder / "other")
    whole = sandbox.injected(no_fault, *arguments, "whole")
    first, second = (
        [path.read_bytes() for path in sorted(sandbox.folder.glob(f"{cache}/tokens/*/*"))] for cache in ("cache", "other")
    )
    same = first == second and len(first) > 5 and weights(sandbox.folder / "run") == weights(sandbox.folder / "whole")
    message = "ended with signal 9; its shard is encoded again"
    outcome = expect(done, 0, message=message, also=began and whole.code == 0 and same)
    return outcome._replace(text=f"{outcome.text}; {message}") if outcome.right else outcome


def invalid_data(content: bytes, code: int, message: str, sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    sandbox.write("other.tsv", content)
    done = sandbox.injected(
        no_fault, "train", recipe, "data.train={tsv='other.tsv'}", "training.steps=2", "--run", "run", "--device", "cpu"
    )
    return expect(done, code, message=message)


def other_counts(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    lines = (sandbox.folder / "target.txt").read_text().splitlines(keepends=True)
    sandbox.write("short.txt", "".join(lines[:-1]))
    files = "data.train={source='source.txt',target='short.txt'}"
    return expect(sandbox.injected(no_fault, "train", recipe, files, "--run", "run"), 3, message="error: ")


CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "changed": change_a_word,
    "reordered": reorder,
    "deleted": Path.unlink,
}
PAIRS = "".join(f"w{number % 20} w3\tw3 w{number % 20}\n" for number in range(60)).encode()
CASES = [
    *(
        Case(11, f"train, the data is {name} during the run", "exit 3 when it is continued; with the data, identical weights",
             partial(changed_data, change))
        for name, change in CHANGES.items()
    ),
    Case(11, "train, a process that encodes the data is killed", "its shard is encoded again; identical store and weights",
         killed_worker),
    Case(11, "train, an empty file", "exit 3, one sentence", partial(invalid_data, b"", 3, "other.tsv is empty")),
    Case(11, "train, a line that is not UTF-8", "skipped and reported",
         partial(invalid_data, PAIRS + b"t\xffo\tdue\n", 0, "1 line that is not UTF-8, skipped")),
    Case(11, "train, NUL in a line", "exit 0 or 3, one sentence", partial(invalid_data, PAIRS + b"a\0b\tc\n", 0, "")),
    Case(11, "train, one target line fewer than source lines", "exit 3, one sentence", other_counts),
    Case(11, "train, 2 GB of zeros in a gzip file of 2 MB", f"exit 3 within {MEMORY} MB", gzip_bomb),
    Case(11, "translate, a pipe as file", "exit 0, a line for each of 3", translate_pipe),
    Case(11, "translate, /dev/stdin as file", "exit 0, a line for each of 60", translate_stdin_by_name),
    Case(11, "evaluate, pipes as files", "the scores of the files", evaluate_pipes),
    Case(11, "data check, pipes as files", "exit 0, 60 pairs", check_pipes),
    Case(11, "data check, a FIFO", "exit 0, 60 pairs", check_fifo),
    Case(11, "train, a FIFO", "exit 3 at once", train_fifo),
    Case(11, "train, Latin-1", "exit 3 with the iconv command", train_latin1),
    Case(11, "train, UTF-16", "exit 3 with the iconv command", train_utf16),
    Case(11, "train, a line of 48 MB", f"skipped, below {MEMORY} MB", long_line),
    Case(11, "train, a word of 400,000 letters", "exit 0 within 60 s", long_word),
]  # fmt: skip
