"""Random numbers of a run are functions of the seed and the step, so checkpoints need no generator state."""

from __future__ import annotations

import numpy as np
import torch


def seed_part(seed: int, step: int, part: int, rank: int = 0) -> None:
    """Seed dropout for one part of one update on one rank."""
    key = np.random.SeedSequence((seed, step, part, rank)).generate_state(2, np.uint32)
    torch.manual_seed(int(key[0]) << 32 | int(key[1]))
