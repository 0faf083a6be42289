"""A claim about the classification of motions: neither length nor start position matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

import heedful
from claims import Evidence
from heedful.data.gaits import GAITS, LENGTHS, draw_gait
from heedful.tasks.series_classification.predictor import SeriesClassifier

LONG = 5 * LENGTHS[1]  # frames
FAR = 1000.0  # meters; training starts within 10
TESTED = 200  # motions of each kind


def gaits(folder: Path) -> Evidence:
    heedful.train("toy-gaits", run=folder / "run", device="cpu", console=Console(quiet=True))
    classifier = SeriesClassifier.load(folder / "run", device="cpu")
    unseen = classifier.evaluate("test")["accuracy"]
    names = list(GAITS)
    long = [draw_gait(names[at % len(names)], np.random.Generator(np.random.Philox(key=[7, at])), LONG) for at in range(TESTED)]
    far = [draw_gait(names[at % len(names)], np.random.Generator(np.random.Philox(key=[8, at]))) for at in range(TESTED)]
    moved = [frames + FAR * np.sign(frames.mean(0)).astype(np.float32) for frames in far]
    shares = {"unseen": unseen}
    for kind, motions in ((f"{LONG} frames", long), (f"start {FAR:g} m away", moved)):
        predicted = classifier.predict(motions)
        shares[kind] = sum(label == names[at % len(names)] for at, label in enumerate(predicted)) / TESTED
    return Evidence({kind: f"{share:.1%}" for kind, share in shares.items()}, min(shares.values()) >= 0.95)
