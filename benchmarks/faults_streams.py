"""Faults of standard streams: closed, full, or closed by the reader; and terminal escape sequences in text."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from faults_workshop import STEPS, Case, Outcome, Sandbox, expect, last_step, no_fault, patch

ESCAPE = "\x1b]0;pwned\x07"


def training(redirection: str, sandbox: Sandbox) -> Outcome:
    """Messages may be lost, but the run completes."""
    sandbox.recipe()
    done = sandbox.shell(f"heed train recipe.toml --run run --device cpu {redirection}")
    return expect(done, 0, also=(sandbox.folder / "run/checkpoints/step-40").exists())


def reader_gone(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    done = sandbox.shell("set -o pipefail; heed train recipe.toml --run run --device cpu 2>&1 | head -2")
    return expect(done, 0, also=(sandbox.folder / "run/checkpoints/step-40").exists())


def translating(redirection: str, codes: tuple[int, ...], sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    return expect(sandbox.shell(f"heed translate run source.txt --device cpu {redirection}"), *codes)


def stdin_closed(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    return expect(sandbox.shell("heed translate run --device cpu <&-"), 2, 3)


def stderr_closed(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("echo 'w1 unknown' | heed translate run --device cpu 2>&-")
    return expect(done, 0, also=done.out.count("\n") == 1)


def early_reader(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("set -o pipefail; (cat source.txt; sleep 2) | heed translate run --device cpu | head -1")
    return expect(done, 0, 141, also=done.out.count("\n") == 1)


def on_a_terminal(command: str, sandbox: Sandbox) -> Outcome:
    """`script` runs the command in a terminal and copies its output."""
    sandbox.trained_run_copy()
    text = "".join(f"{ESCAPE}w{number % 20} w3\t{ESCAPE}w3 w{number % 20}\n" for number in range(60))
    sandbox.write("hostile.tsv", text)
    sandbox.write("hostile.txt", f"{ESCAPE}w1 w2\n")
    sandbox.write("heed", f'#!/bin/sh\nexec "{sys.executable}" -m heedful "$@"\n').chmod(0o755)
    sandbox.write("command.sh", f"./{command}\n")
    done = sandbox.shell("script -qec 'bash command.sh' /dev/null < /dev/null")
    return expect(done._replace(out=done.out.replace("\x1b", "ESC")), 0, also="\x1b]0;" not in done.out)


def full_log(sandbox: Sandbox) -> Outcome:
    """A run whose log cannot be written stops, and continues from its checkpoint."""
    run = sandbox.trained_run_copy()

    def fill() -> None:
        from heedful.training import metrics_log

        own: Any = patch(metrics_log, "append_line", lambda path, line: own(Path("/dev/full"), line))

    done = sandbox.injected(fill, "train", "run", f"training.steps={STEPS + 5}", "--device", "cpu")
    again = sandbox.injected(no_fault, "train", "run", f"training.steps={STEPS + 5}", "--device", "cpu")
    return expect(done, 4, message="No space left on device", also=again.code == 0 and last_step(run) == STEPS + 5)


def tracker_down(sandbox: Sandbox) -> Outcome:
    """Nothing listens at the address of the tracker."""
    sandbox.environment |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    recipe = sandbox.recipe()
    done = sandbox.injected(no_fault, "train", recipe, 'training.trackers=["mlflow"]', "--run", "run", "--device", "cpu")
    once = done.err.count("warning: mlflow failed, and training continues without it") == 1
    outcome = expect(done, 0, also=once and last_step(sandbox.folder / "run") == STEPS)
    warning = next((line for line in done.err.splitlines() if line.startswith("warning: ")), "no warning")
    return Outcome(outcome.right, f"{outcome.text}; {warning}")


HOSTILE = "data.train=\"{tsv='hostile.tsv'}\" data.valid=\"{tsv='hostile.tsv'}\" task.samples=3 training.validate_every=5"

CASES = [
    Case(16, "train, the disk of metrics.jsonl is full", "exit 4, and the same command continues", full_log),
    Case(16, "train, the server of a tracker is down", "one warning, the run is complete", tracker_down),
    Case(16, "train, 2>/dev/full", "exit 0, the run is complete", partial(training, "2>/dev/full")),
    Case(16, "train, 2>&-", "exit 0, the run is complete", partial(training, "2>&-")),
    Case(16, "train, the reader of stderr exits", "exit 0, the run is complete", reader_gone),
    Case(16, "translate, >/dev/full", "exit 4", partial(translating, ">/dev/full", (4,))),
    Case(16, "translate, >&-", "exit 4", partial(translating, ">&-", (4,))),
    Case(16, "translate, stdin closed", "exit 2 or 3", stdin_closed),
    Case(16, "translate, stderr closed", "exit 0, stdout has translations only", stderr_closed),
    Case(16, "translate, | head -1", "one line, quietly", early_reader),
    Case(
        16,
        "train on a terminal, escape sequences in the corpus",
        "escaped",
        partial(on_a_terminal, f"heed train recipe.toml {HOSTILE} --run other --device cpu"),
    ),
    Case(
        16,
        "translate on a terminal, escape sequences in the text",
        "escaped",
        partial(on_a_terminal, "heed translate run hostile.txt --device cpu"),
    ),
]
