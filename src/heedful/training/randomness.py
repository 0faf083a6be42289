"""Every random number of a run is keyed: nothing random needs to be saved, so nothing random can be lost."""

from __future__ import annotations

import numpy as np
import torch


def seed_part(seed: int, step: int, part: int, rank: int = 0) -> None:
    """Dropout of one part of one update on one rank is a pure function of these four."""
    key = np.random.SeedSequence((seed, step, part, rank)).generate_state(2, np.uint32)
    torch.manual_seed(int(key[0]) << 32 | int(key[1]))
