"""Untrusted runs: configs with huge sizes, pickles, headers that lie, invalid tokenizers, files of two runs in one folder."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults_workshop import STEPS, Case, Outcome, Sandbox, expect, no_fault

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


class Evil:
    """Unpickling it runs a command."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch pwned",)


def header(text: str, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file: the length of the header, the header, the data."""
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data


ONE = '"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
WEIGHTS: dict[str, Callable[[], bytes]] = {
    "a pickle that runs a command": lambda: pickle.dumps(Evil()),
    "two tensors that overlap": lambda: header(f"{{{ONE},{ONE.replace('w', 'v', 1)}}}", b"1234"),
    "a tensor of 40 GB in 4 bytes": lambda: header(ONE.join("{}").replace("[1]", "[9999999999]"), b"1234"),
    "an unknown type": lambda: header(ONE.join("{}").replace("F32", "NAN"), b"1234"),
    "a header of 2 GB in 20 bytes": lambda: header("{}", bytes(10), length=1 << 31),
    "a header nested 3,000 deep": lambda: header("[" * 3000),
}


def forge(run: Path, content: bytes, size: int | None = None) -> None:
    """Replace the weights of every checkpoint, with a manifest that matches them; size: that of a sparse file."""
    from heedful.storage.manifest import NAME
    from heedful.training.manifest import read_manifest, record

    for folder in [run / "checkpoints" / f"step-{STEPS}"] if size else checkpoints_of(run):
        path, manifest = folder / "model.safetensors", read_manifest(folder)
        path.write_bytes(content)
        if size is not None:
            os.truncate(path, size)
        files = dict(manifest.files) | {path.name: record(path)}
        (folder / NAME).write_text(manifest.model_copy(update={"files": files}).render())


def hostile_weights(content: Callable[[], bytes], command: str, sandbox: Sandbox) -> Outcome:
    run = sandbox.trained_run_copy()
    forge(run, content())
    arguments = ("translate", "run", "source.txt") if command == "translate" else ("train", "run")
    done = sandbox.injected(no_fault, *arguments, "--device", "cpu", limit=60)
    safe = done.megabytes < MEMORY and not list(sandbox.folder.rglob("pwned"))
    return expect(done, 4, message="is not a safetensors file", also=safe)


def hostile_size(sandbox: Sandbox) -> Outcome:
    """A sparse file whose header has 2 GB."""
    forge(sandbox.trained_run_copy(), header("{}", length=1 << 31), size=(1 << 31) + 64)
    done = sandbox.injected(no_fault, "translate", "run", "source.txt", "--device", "cpu", limit=120)
    return expect(done, 4, message="is not a safetensors file", also=done.megabytes < MEMORY)


def unsafe_manifest(name: str, command: str, sandbox: Sandbox) -> Outcome:
    """A manifest, with a valid checksum, that lists a file outside of the checkpoint."""
    from heedful.storage.manifest import NAME
    from heedful.training.manifest import read_manifest, record

    run = sandbox.trained_run_copy()
    outside = sandbox.write("outside.safetensors", b"not of the run")
    for folder in checkpoints_of(run):
        manifest = read_manifest(folder)
        files = dict(manifest.files) | {name: record(outside)}
        (folder / NAME).write_text(manifest.model_copy(update={"files": files}).render())
    done = sandbox.injected(no_fault, *NAMED[command])
    unchanged = outside.read_bytes() == b"not of the run"
    return expect(done, 4, message=f"lists {name!r}; expected names of files in the folder", also=unchanged)


def unsafe_tensor(name: str, command: str, sandbox: Sandbox) -> Outcome:
    """Weights with one more tensor, whose name is a path outside of the run."""
    import torch
    from safetensors.torch import load_file, save

    run = sandbox.trained_run_copy()
    forge(run, save(load_file(checkpoints_of(run)[0] / "model.safetensors") | {name: torch.zeros(1)}))
    before = sorted(sandbox.folder.iterdir())
    done = sandbox.injected(no_fault, *NAMED[command])
    new = [path.name for path in sandbox.folder.iterdir() if path not in before and path.name != "cache"]
    return expect(done, 4, message=name, also=not new)


def unknown_alias(command: str, sandbox: Sandbox) -> Outcome:
    """A manifest, with a valid checksum, in which a tensor is another name of one that does not exist."""
    from heedful.storage.manifest import NAME
    from heedful.training.manifest import read_manifest, record

    run = sandbox.trained_run_copy()
    for folder in checkpoints_of(run):
        manifest, path = read_manifest(folder), folder / "model.safetensors"
        files = dict(manifest.files) | {path.name: record(path, {"../alias": "nothing"})}
        (folder / NAME).write_text(manifest.model_copy(update={"files": files}).render())
    done = sandbox.injected(no_fault, *NAMED[command])
    return expect(done, 4, message="error:")


def checkpoints_of(run: Path) -> list[Path]:
    found = sorted(path for path in (run / "checkpoints").glob("step-*") if path.is_dir())
    assert found, f"{run} has checkpoints"
    return found


def other_vocabulary(sandbox: Sandbox) -> Outcome:
    """A tokenizer with one more word, and checksums that match it."""
    from heedful.storage.reading import sha256_of
    from heedful.training import facts

    run = sandbox.trained_run_copy()
    path = run / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["another"] = len(vocabulary)
    path.write_text(json.dumps(content))
    known = facts.read_facts(run)
    known["files"][path.name] = sha256_of(path)
    facts.write_facts(run, known | {"fingerprint": facts._fingerprint(known)})
    return translate(sandbox)


DEEP = "x = " + "[" * 3000 + "]" * 3000
NAMED = {
    "translate": ("translate", "run", "source.txt", "--device", "cpu"),
    "train": ("train", "run", f"training.steps={STEPS + 5}", "--device", "cpu"),
}
OUTSIDE = {"with ..": "../../../outside.safetensors", "that is absolute": "/etc/passwd"}
TOKENIZERS = (ids_beyond, bad_expression, backtracking_expression, bad_normalizer)
REJECTED = f"exit 2, 3 or 4 within {SECONDS} s and {MEMORY} MB"
CASES = [
    Case(14, "a run's config with dim = 20000", REJECTED, partial(hostile_config, "dim = ", "dim = 20000")),
    Case(14, "a run's config with layers = 100000", REJECTED, partial(hostile_config, "layers = ", "layers = 100000")),
    Case(14, "a run's config nested 3,000 deep", REJECTED, partial(hostile_config, "seed = ", DEEP)),
    Case(14, "an override nested 3,000 deep", "exit 2", deep_override),
    *(
        Case(15, f"tokenizer.json: {change.__name__.replace('_', ' ')}", REJECTED, partial(hostile_tokenizer, change))
        for change in TOKENIZERS
    ),
    *(
        Case(14, f"{command}, {name} as weights", f"exit 4 within {MEMORY} MB; nothing is executed",
             partial(hostile_weights, content, command))
        for name, content in WEIGHTS.items()
        for command in ("translate", "train")
    ),
    Case(14, "translate, a header of 2 GB in a file of that size", f"exit 4 within {MEMORY} MB", hostile_size),
    *(
        Case(14, f"{command}, a {what} {how}", "exit 4, one sentence; nothing outside is read or written",
             partial(case, name, command))
        for command in NAMED
        for what, case in (("file in the manifest with a name", unsafe_manifest), ("tensor with a name", unsafe_tensor))
        for how, name in OUTSIDE.items()
    ),
    *(
        Case(14, f"{command}, a manifest that names a tensor which does not exist", "exit 4, one sentence",
             partial(unknown_alias, command))
        for command in NAMED
    ),
    Case(15, "a tokenizer with one more word and matching checksums", REJECTED, other_vocabulary),
    Case(15, "the tokenizer of another run", REJECTED, other_tokenizer),
    Case(6, "the checkpoints of another run", "exit 4", other_weights),
]  # fmt: skip
