"""Tiny runs for the views that look inside a model: kinds of attention, gold links, many heads, and hostile words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from tiny_tasks import HEIGHT, PATCH, WIDTH, write_tiny_recipe
from workshop import heed

HOSTILE = ["<img/src=x/onerror=alert(1)>", "\u202eabc\u202c", "y" * 3000, "日本語", "שלום", "</script>"]
WIDE_TEXT = " ".join(f"w{1 + at % 8}" for at in range(40))  # 40 tokens
FAST = "training.schedule={name='constant', learning_rate=0.1, warmup=1}"  # outputs that depend on their inputs
IMAGES = f"dim=16, heads=2, image_size=[{HEIGHT}, {WIDTH}], patch={PATCH}"
GRAPH = 'family="transformer", dim=16, feed_forward=16'

CHANGES: dict[str, tuple[str, Sequence[str]]] = {  # run -> its task, and changes of the tiny recipe of that task
    "bert": ("classification", ['model={family="bert", dim=16, layers=2, heads=2}']),
    "bahdanau": ("translation", ['model={family="bahdanau", dim=16}']),
    "rotary": ("language", ['model={family="gpt", dim=16, layers=2, heads=2, position="rotary"}']),
    "alibi": ("translation", [f'model={{{GRAPH}, layers=1, heads=2, position="alibi"}}']),
    "wide": ("translation", [f"model={{{GRAPH}, layers=6, heads=8}}"]),
    "vit": ("image_classification", [f"model={{{IMAGES}, layers=2, family='vit'}}"]),
    "captions": ("captioning", [f"model={{{IMAGES}, layers=2, family='vision_encoder_decoder'}}"]),
    "nodes": ("node_classification", ["model.layers=['self-attention', 'self-attention']"]),
    "forecasting": ("forecasting", [FAST]),
    "decisions": ("decisions", [FAST]),
    "gold": ("translation", ["data={builtin=true, counts={train=80, valid=20, test=20}, batch_tokens=256}"]),
}


def train_family_runs(folder: Path, names: Sequence[str] = tuple(CHANGES)) -> dict[str, Path]:
    """A run folder of each name, trained for two steps."""
    runs = {}
    for name in names:
        task, changes = CHANGES[name]
        (folder / f"data-{name}").mkdir()
        recipe, runs[name] = write_tiny_recipe(task, folder / f"data-{name}"), folder / name
        assert heed("train", recipe, *changes, "training.steps=2", "--run", runs[name]) == 0
    return runs


def train_hostile_run(folder: Path) -> Path:
    """A translation model whose vocabulary consists of markup, direction overrides, a very long word and other scripts."""
    lines = [f"{' '.join(some)}\t{' '.join(reversed(some))}\n" for some in list(permutations(HOSTILE, 3))[:40]]
    (folder / "data-hostile").mkdir()
    recipe = write_tiny_recipe("translation", folder / "data-hostile")
    for name in ("pairs.tsv", "test-pairs.tsv"):
        (folder / "data-hostile" / name).write_text("".join(lines), encoding="utf-8")
    assert heed("train", recipe, "training.steps=2", "--run", folder / "hostile") == 0
    return folder / "hostile"
