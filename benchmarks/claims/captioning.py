"""A claim about captions of generated scenes (src/heedful/data/shape_scenes.py): combinations that were not in the training
data are described exactly, and a word attends to what it names.

The head is selected on the validation data and reported on the test data. A word is a color or a shape; its attention is that
of the step that predicts it, in a pass over the true caption. It is right if the patch with the largest weight is one of
those of the object, of which the object covers at least a quarter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

import heedful
from claims import SEEDS, Evidence, by_seed
from heedful.data.shape_scenes import draw_scenes
from heedful.nn.hooks import record
from heedful.nn.model import CROSS

EXACT, ATTENDS = 0.95, 0.80

Head = tuple[int, int]  # layer, head


class Attended(NamedTuple):
    right: Counter[Head]  # words whose largest weight is on a patch of their object
    words: int
    chance: float  # mean share of the patches that are right


def attended(captioner: heedful.Captioner, split: str) -> Attended:
    """Count for each head of cross-attention."""
    layers = {one.weights: one.layer for one in captioner.model.attentions() if one.kind == CROSS}
    right: Counter[Head] = Counter()
    words, share = 0, 0.0
    for batch in captioner.forced_batches(captioner.sample_texts(split)):
        with torch.inference_mode(), record(captioner.model, *layers) as recorded:
            batch.logits()
        for row, sample in enumerate(batch.samples):
            assert sample.alignment is not None, "generated scenes have gold patches"
            gold: dict[int, set[int]] = {}
            for patch, word in sample.alignment.sure:
                gold.setdefault(word, set()).add(patch)
            places = [(step, gold[word]) for step, word in enumerate(sample.target.words) if word in gold]
            words, share = words + len(places), share + sum(len(patches) for _, patches in places) / batch.source_time
            for name, layer in layers.items():
                top = recorded[name][row].argmax(-1)  # (heads, target time)
                right.update(
                    (layer, head) for step, patches in places for head, at in enumerate(top[:, step].tolist()) if at in patches
                )
    return Attended(right, words, share / words)


def describe_scenes(folder: Path) -> Evidence:
    rows, chance = [], 0.0
    for seed in SEEDS:
        run = folder / f"seed-{seed}"
        heedful.train("toy-captions", [f"seed={seed}"], run=run, device="cpu", console=Console(quiet=True))
        captioner = heedful.Captioner.load(run, device="cpu")
        data = captioner.run.data
        seen, unseen = (
            {drawn.scene.combination for drawn in draw_scenes(split, getattr(data.counts, split), captioner.images.form)}
            for split in ("train", "test")
        )
        assert not seen & unseen, "the combinations of the test data are new"
        (best, _), *_ = attended(captioner, "valid").right.most_common(1)
        test = attended(captioner, "test")
        chance = test.chance
        exact = captioner.evaluate("test")["exact_match"] / 100
        rows.append({"exact, unseen combinations": exact, "word attends to its object": test.right[best] / test.words})
    holds = all(row["exact, unseen combinations"] >= EXACT and row["word attends to its object"] >= ATTENDS for row in rows)
    return Evidence(by_seed(rows) | {"patches of an object": f"{100 * chance:.1f}%"}, holds)
