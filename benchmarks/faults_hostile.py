"""Runs from strangers: configs of absurd sizes, tokenizers that lie, parts of two runs in one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from faults_workshop import STEPS, Case, Place, Seen, ends

MEMORY = 2000  # megabytes
SECONDS = 30


def translate(place: Place) -> Seen:
    done = place.heed("translate", "run", "source.txt", "--device", "cpu", limit=60)
    quick = done.seconds < SECONDS and done.megabytes < MEMORY
    return ends(done, 2, 3, 4, says="error:", also=quick)


def hostile_config(old: str, new: str, place: Place) -> Seen:
    path = place.trained() / "config.toml"
    text = path.read_text()
    changed = re.sub(rf"^{old}.*$", new, text, count=1, flags=re.MULTILINE)
    assert changed != text, "the config has that line"
    path.write_text(changed)
    return translate(place)


def hostile_tokenizer(change: Callable[[dict[str, Any]], None], place: Place) -> Seen:
    path = place.trained() / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return translate(place)


def ids_beyond(content: dict[str, Any]) -> None:
    content["model"]["vocab"] = {token: id + 10_000 for token, id in content["model"]["vocab"].items()}


def bad_expression(content: dict[str, Any]) -> None:
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}


def backtracking_expression(content: dict[str, Any]) -> None:
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False}


def bad_normalizer(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def other_tokenizer(place: Place) -> Seen:
    """Of the same size, so that every id is known: only a bond between the files can tell."""
    recipe, run = place.recipe(), place.trained()
    text = (place.folder / "pairs.tsv").read_text()
    (place.folder / "pairs.tsv").write_text(text.replace("w1", "v1"))
    made = place.heed("train", recipe, "training.steps=2", "--run", "other", "--device", "cpu")
    (run / "tokenizer.json").write_bytes((place.folder / "other/tokenizer.json").read_bytes())
    seen = translate(place)
    return Seen(seen.right and made.code == 0, seen.text)


def other_weights(place: Place) -> Seen:
    """Of another seed, copied under the same name; resuming would mix two runs."""
    run = place.trained()
    made = place.heed("train", "recipe.toml", "seed=7", "--run", "other", "--device", "cpu")
    done = place.shell(
        f"rm -r run/checkpoints && cp -r other/checkpoints run/ && heed train run training.steps={STEPS + 5} --device cpu"
    )
    assert run.exists()
    return ends(done, 4, says="error:", also=made.code == 0)


def deep_override(place: Place) -> Seen:
    return ends(place.heed("train", place.recipe(), "data.train=" + "[" * 3000 + "]" * 3000, "--run", "run"), 2, says="error:")


DEEP = "x = " + "[" * 3000 + "]" * 3000
TOKENIZERS = (ids_beyond, bad_expression, backtracking_expression, bad_normalizer)
REFUSED = f"exit 2, 3 or 4 within {SECONDS} s and {MEMORY} MB"
CASES = [
    Case("a run's config with dim = 20000", REFUSED, partial(hostile_config, "dim = ", "dim = 20000")),
    Case("a run's config with layers = 100000", REFUSED, partial(hostile_config, "layers = ", "layers = 100000")),
    Case("a run's config nested 3,000 deep", REFUSED, partial(hostile_config, "seed = ", DEEP)),
    Case("an override nested 3,000 deep", "exit 2", deep_override),
    *(
        Case(f"tokenizer.json: {change.__name__.replace('_', ' ')}", REFUSED, partial(hostile_tokenizer, change))
        for change in TOKENIZERS
    ),
    Case("the tokenizer of another run", REFUSED, other_tokenizer),
    Case("the checkpoints of another run", "exit 4", other_weights),
]
