"""A claim about captions of generated scenes (src/heedful/data/shape_scenes.py): combinations that were not in the training
data are described exactly, and a word attends to what it names.

A word is a color or a shape; its attention is that of the step that predicts it, in a pass over the true caption, in the mean
of all heads and layers, which `heed inspect image` draws. It is right if the patch with the largest weight is one of those of
the object, of which the object covers at least a quarter."""

from __future__ import annotations

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


class Attended(NamedTuple):
    right: int  # words whose largest weight is on a patch of their object
    words: int
    chance: float  # mean share of the patches that are right


def attended(captioner: heedful.Captioner, split: str) -> Attended:
    names = [one.weights for one in captioner.model.attentions() if one.kind == CROSS]
    right, words, share = 0, 0, 0.0
    for batch in captioner.forced_batches(captioner.sample_texts(split)):
        with torch.inference_mode(), record(captioner.model, *names) as recorded:
            batch.logits()
        weights = torch.stack([recorded[name].mean(1) for name in names]).mean(0)  # (images, target time, patches)
        for row, sample in enumerate(batch.samples):
            assert sample.alignment is not None, "generated scenes have gold patches"
            gold: dict[int, set[int]] = {}
            for patch, word in sample.alignment.sure:
                gold.setdefault(word, set()).add(patch)
            top = weights[row].argmax(-1).tolist()
            places = [(step, gold[word]) for step, word in enumerate(sample.target.words) if word in gold]
            right += sum(top[step] in patches for step, patches in places)
            words, share = words + len(places), share + sum(len(patches) for _, patches in places) / batch.source_time
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
        test = attended(captioner, "test")
        chance = test.chance
        exact = captioner.evaluate("test")["exact_match"] / 100
        rows.append({"exact, unseen combinations": exact, "word attends to its object": test.right / test.words})
    holds = all(row["exact, unseen combinations"] >= EXACT and row["word attends to its object"] >= ATTENDS for row in rows)
    return Evidence(by_seed(rows) | {"patches of an object": f"{100 * chance:.1f}%"}, holds)
