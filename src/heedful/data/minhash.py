"""Near-duplicates by MinHash (Broder, 1997) and locality-sensitive hashing.

    similarity(A, B) = |A ∩ B| / |A ∪ B|                       Jaccard, of the sets of character 5-grams of two texts
    signature(A)_k   = min over the 5-grams g of A of h_k(g)    k = 1 … 64
    P(signature(A)_k = signature(B)_k) = similarity(A, B)

so that the share of equal numbers estimates the similarity, with a standard error of sqrt(s (1 - s) / 64), at most 0.0625. Only
texts with all 4 numbers of one of 16 bands in common are compared; a similarity s is missed with probability (1 - s^4)^16: 2e-4
for 0.8, 4e-8 for 0.9. Texts are compared in lower case, without punctuation.

Signatures are in a temporary file, 256 bytes for a text; keys are sorted in partitions of two million, so memory does not
grow with the number of texts, except for one byte for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.storage.mapping import collect

SHINGLE = 5  # characters
NUMBERS, ROWS = 64, 4  # of a signature, of a band
NEIGHBORS = 8  # earlier texts with the same key that a text is compared with
PARTITION = 1 << 21  # keys that are sorted at a time
BLOCK = 1 << 20  # keys that are read at a time
CHARACTERS = 1 << 16  # hashed at a time
SEED = 1

Keys = NDArray[np.uint64]
Signatures = NDArray[np.uint32]  # (texts, NUMBERS)

_generator = np.random.default_rng(SEED)
MULTIPLIERS = _generator.integers(1, 1 << 63, NUMBERS, np.uint64) | np.uint64(1)
OFFSETS = _generator.integers(0, 1 << 63, NUMBERS, np.uint64)
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd; of the polynomial hash of a 5-gram


def shingles(text: str) -> Keys:
    """Hashes of the character 5-grams of a text; a shorter text has one hash, of all of it."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    if len(codes) < SHINGLE:
        codes = np.concatenate((codes, np.zeros(SHINGLE - len(codes), np.uint64)))
    hashes = np.zeros(len(codes) - SHINGLE + 1, np.uint64)
    for at in range(SHINGLE):
        hashes = hashes * BASE + codes[at : len(codes) - SHINGLE + 1 + at]  # modulo 2^64
    return mix(hashes)


def mix(hashes: Keys) -> Keys:
    """Spread the bits of a polynomial hash over all 64 (the finalizer of SplitMix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def signatures(texts: Sequence[str]) -> Signatures:
    """The signature of each text, (texts, NUMBERS)."""
    rows: list[Signatures] = []
    waiting: list[Keys] = []
    for text in texts:
        waiting.append(shingles(text))
        if sum(map(len, waiting)) >= CHARACTERS:
            rows.append(minima(waiting))
            waiting = []
    if waiting:
        rows.append(minima(waiting))
    return np.concatenate(rows) if rows else np.zeros((0, NUMBERS), np.uint32)


def minima(sets: Sequence[Keys]) -> Signatures:
    starts = np.cumsum([0, *map(len, sets[:-1])])
    every = np.concatenate(sets)  # (shingles,)
    numbers = np.empty((len(sets), NUMBERS), np.uint32)
    for k in range(NUMBERS):
        hashed = ((every * MULTIPLIERS[k] + OFFSETS[k]) >> np.uint64(32)).astype(np.uint32)
        numbers[:, k] = np.minimum.reduceat(hashed, starts)
    return numbers


def store_signatures(chunks: Iterable[Sequence[str]]) -> Signatures:
    """The signatures of texts in chunks, in a temporary file."""
    flat = collect((signatures(texts).ravel() for texts in chunks), np.uint32)
    return flat.reshape(-1, NUMBERS)


def near_duplicates(stored: Signatures, threshold: float) -> NDArray[np.bool_]:
    """Whether each text is similar to an earlier one: an estimated similarity of at least `threshold`. Of more than NEIGHBORS
    texts with the same key, each is compared with the ones before it in the file, nearest first."""
    found = np.zeros(len(stored), bool)
    for band in range(0, NUMBERS, ROWS):
        for keys, indices in sorted_partitions(stored, band):
            for distance in range(1, min(NEIGHBORS, len(keys) - 1) + 1):
                same = keys[distance:] == keys[:-distance]
                later, earlier = indices[distance:][same], indices[:-distance][same]
                later, earlier = later[~found[later]], earlier[~found[later]]
                for at in range(0, len(later), CHARACTERS):
                    a, b = later[at : at + CHARACTERS], earlier[at : at + CHARACTERS]
                    found[a[(stored[a] == stored[b]).mean(1) >= threshold]] = True
    return found


def sorted_partitions(stored: Signatures, band: int) -> Iterator[tuple[Keys, NDArray[np.int64]]]:
    """The keys of a band with the indices of their texts, sorted by both, one partition of the keys at a time."""
    count = -(-len(stored) // PARTITION)
    for partition in range(count):
        parts: list[tuple[Keys, NDArray[np.int64]]] = []
        for start in range(0, len(stored), BLOCK):
            keys = band_keys(stored[start : start + BLOCK, band : band + ROWS])
            chosen = np.flatnonzero(keys % np.uint64(count) == partition)
            parts.append((keys[chosen], chosen + start))
        keys, indices = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(keys, kind="stable")
        yield keys[order], indices[order]


def band_keys(numbers: Signatures) -> Keys:
    """One hash of the numbers of each row."""
    keys = np.zeros(len(numbers), np.uint64)
    for column in numbers.T:
        keys = mix(keys * BASE + column)
    return keys


def repeated(hashes: Keys) -> NDArray[np.bool_]:
    """Whether each 64-bit hash occurred before."""
    found = np.zeros(len(hashes), bool)
    count = -(-len(hashes) // PARTITION)
    for partition in range(count):
        chosen = [
            start + np.flatnonzero(hashes[start : start + BLOCK] % np.uint64(count) == partition)
            for start in range(0, len(hashes), BLOCK)
        ]
        indices = np.concatenate(chosen)
        order = indices[np.argsort(hashes[indices], kind="stable")]
        found[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
    return found
