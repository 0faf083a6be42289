"""Upper bounds of numbers in config files, overrides and command-line options.

They are far above what a run can use and far below overflow: a product of two sizes and a count fits 64 bits.
`base.py` derives the types of all numeric options from them. This module imports nothing, so that `heed --help` stays fast.
"""

from __future__ import annotations

MAX_INTEGER = 2**63 - 1  # of torch, NumPy and TOML; also the largest seed
MAX_COUNT = 10**9  # steps, sentences, tokens
MAX_SIZE = 10**6  # one dimension of a tensor, the length of a sequence
MAX_VOCAB = 10**7
MAX_SMALL = 1000  # layers, heads, experts
MAX_BEAM = 10_000  # hypotheses per sentence
MAX_THREADS = 1024
MAX_PROCESSES = 1024  # on one machine
MAX_RESAMPLES = 10**6  # of the bootstrap
MAX_NODES = 100_000  # machines of a plan
MAX_GPUS = 1024  # of a machine
MAX_NUMBER = 1e9  # learning rates, weights of losses
MIN_EPSILON = 1e-16  # added to a denominator in float32: far below it, the square of a small gradient is 0 and 0 / 0 is NaN
