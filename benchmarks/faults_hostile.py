"""Untrusted runs: configs with huge sizes, invalid tokenizers, files of two runs in one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from faults_workshop import STEPS, Case, Outcome, Sandbox, expect

MEMORY = 2000  # megabytes
SECONDS = 30


def translate(sandbox: Sandbox) -> Outcome:
    done = sandbox.heed("translate", "run", "source.txt", "--device", "cpu", limit=60)
    quick = done.seconds < SECONDS and done.megabytes < MEMORY
    return expect(done, 2, 3, 4, message="error:", also=quick)


def hostile_config(old: str, new: str, sandbox: Sandbox) -> Outcome:
    path = sandbox.trained_run_copy() / "config.toml"
    text = path.read_text()
    changed = re.sub(rf"^{old}.*$", new, text, count=1, flags=re.MULTILINE)
    assert changed != text, "the config has that line"
    path.write_text(changed)
    return translate(sandbox)


def hostile_tokenizer(change: Callable[[dict[str, Any]], None], sandbox: Sandbox) -> Outcome:
    path = sandbox.trained_run_copy() / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return translate(sandbox)


def ids_beyond(content: dict[str, Any]) -> None:
    content["model"]["vocab"] = {token: id + 10_000 for token, id in content["model"]["vocab"].items()}


def bad_expression(content: dict[str, Any]) -> None:
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}


def backtracking_expression(content: dict[str, Any]) -> None:
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False}


def bad_normalizer(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def other_tokenizer(sandbox: Sandbox) -> Outcome:
    """A tokenizer of the same size, so that all ids are valid: only a fingerprint can detect it."""
    recipe, run = sandbox.recipe(), sandbox.trained_run_copy()
    text = (sandbox.folder / "pairs.tsv").read_text()
    (sandbox.folder / "pairs.tsv").write_text(text.replace("w1", "v1"))
    other = sandbox.heed("train", recipe, "training.steps=2", "--run", "other", "--device", "cpu")
    (run / "tokenizer.json").write_bytes((sandbox.folder / "other/tokenizer.json").read_bytes())
    outcome = translate(sandbox)
    return Outcome(outcome.right and other.code == 0, outcome.text)


def other_weights(sandbox: Sandbox) -> Outcome:
    """Checkpoints of another seed with the same name; resuming would mix two runs."""
    run = sandbox.trained_run_copy()
    other = sandbox.heed("train", "recipe.toml", "seed=7", "--run", "other", "--device", "cpu")
    done = sandbox.shell(
        f"rm -r run/checkpoints && cp -r other/checkpoints run/ && heed train run training.steps={STEPS + 5} --device cpu"
    )
    assert run.exists()
    return expect(done, 4, message="error:", also=other.code == 0)


def deep_override(sandbox: Sandbox) -> Outcome:
    return expect(
        sandbox.heed("train", sandbox.recipe(), "data.train=" + "[" * 3000 + "]" * 3000, "--run", "run"), 2, message="error:"
    )


DEEP = "x = " + "[" * 3000 + "]" * 3000
TOKENIZERS = (ids_beyond, bad_expression, backtracking_expression, bad_normalizer)
REJECTED = f"exit 2, 3 or 4 within {SECONDS} s and {MEMORY} MB"
CASES = [
    Case("a run's config with dim = 20000", REJECTED, partial(hostile_config, "dim = ", "dim = 20000")),
    Case("a run's config with layers = 100000", REJECTED, partial(hostile_config, "layers = ", "layers = 100000")),
    Case("a run's config nested 3,000 deep", REJECTED, partial(hostile_config, "seed = ", DEEP)),
    Case("an override nested 3,000 deep", "exit 2", deep_override),
    *(
        Case(f"tokenizer.json: {change.__name__.replace('_', ' ')}", REJECTED, partial(hostile_tokenizer, change))
        for change in TOKENIZERS
    ),
    Case("the tokenizer of another run", REJECTED, other_tokenizer),
    Case("the checkpoints of another run", "exit 4", other_weights),
]
