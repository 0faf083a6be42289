"""Generated gaits: trajectories of five joints in three dimensions, of any length, from any start position.

    joint(t) = start + speed t + rest + amplitude sin(2 pi frequency t + phase)         hip, feet and hands, 20 frames a second

A gait is its frequency and the phases of the limbs. Start position, speed, first phase and size of the body vary at random, so
that no single frame tells the gait.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

SeriesClassToy = Literal["gaits"]
Frames = NDArray[np.float32]  # (frames, 3 x joints)
JOINTS = ("hip", "left_foot", "right_foot", "left_hand", "right_hand")
COLUMNS = tuple(f"{joint}_{axis}" for joint in JOINTS for axis in "xyz")
REST = np.array([[0, 0, 1.0], [0, 0.15, 0], [0, -0.15, 0], [0, 0.3, 0.9], [0, -0.3, 0.9]])  # (joints, 3), in meters
RATE = 20  # frames a second
NOISE = 0.03  # standard deviation of every coordinate
LENGTHS = 20, 80  # frames: fewest, most


class Gait(NamedTuple):
    frequency: float  # cycles a second
    right: float  # phase of the right foot, as a part of the cycle; the left one has 0
    weak: float  # size of the right foot's swing, relative to the left one
    hands: float  # phase of the left hand; the right one is as far from it as the feet are from each other
    bounce: float  # cycles of the hip in one cycle of a foot


GAITS: dict[str, Gait] = {
    "walking": Gait(1.0, 0.5, 1.0, 0.5, 2),
    "running": Gait(2.2, 0.5, 1.0, 0.5, 2),
    "limping": Gait(1.0, 0.35, 0.4, 0.5, 1),
    "jumping": Gait(1.4, 0.0, 1.0, 0.0, 1),
    "pacing": Gait(1.0, 0.5, 1.0, 0.0, 2),  # hand and foot of a side together
}


def draw_gait(name: str, draw: np.random.Generator, frames: int | None = None) -> Frames:
    """The frames of a gait; frames: their number, default: at random."""
    gait, count = GAITS[name], frames or int(draw.integers(LENGTHS[0], LENGTHS[1] + 1))
    time = np.arange(count) / RATE
    frequency, size = gait.frequency * draw.uniform(0.9, 1.1), draw.uniform(0.8, 1.2)
    cycle = 2 * math.pi * (frequency * time + draw.uniform())  # (frames,)
    phases = np.array([0.0, 0.0, gait.right, gait.hands, gait.hands + gait.right])  # of each joint
    reach = np.array([0.0, 0.35, 0.35 * gait.weak, 0.2, 0.2])  # forward
    swing = reach * np.sin(cycle[:, None] + 2 * math.pi * phases)  # (frames, joints)
    rise = np.array([0.0, 0.12, 0.12 * gait.weak, 0.04, 0.04]) * np.cos(cycle[:, None] + 2 * math.pi * phases)
    rise[:, 0] = 0.06 * np.sin(gait.bounce * cycle)  # the hip
    joints = np.zeros((count, len(JOINTS), 3)) + REST
    joints[..., 0] += swing
    joints[..., 2] += rise
    start, speed = draw.uniform(-10, 10, 3), np.array([draw.uniform(0.3, 1.5), 0, 0])
    moved = size * joints + start + (speed * time[:, None])[:, None]  # (frames, joints, 3)
    noisy: NDArray[np.float64] = moved + NOISE * draw.normal(size=moved.shape)
    return noisy.reshape(count, -1).astype(np.float32)


def make_gaits(split: int, count: int) -> list[tuple[str, Frames]]:
    """The labels and frames of a split, each gait equally often."""
    names = list(GAITS)
    return [
        (names[at % len(names)], draw_gait(names[at % len(names)], np.random.Generator(np.random.Philox(key=[split, at]))))
        for at in range(count)
    ]
