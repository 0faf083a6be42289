"""Split texts into train, valid and test by a hash, with near-duplicates kept together.

    u = first 64 bits of SHA-256(key, first text of its group) / 2^64;   train if u < a, valid if u < a + b, else test

for the fractions (a, b, c). "First" is by alphabet, so that the part of a group depends neither on the order of the texts nor
on other groups. Two texts are in one group if they are near-duplicates, or if a chain of near-duplicates links them:

    same words      they are equal in lower case and without punctuation
    shared 4-grams  at least half of the word 4-grams of the text that has fewer occur in the other one

A 4-gram that occurs in more than `FREQUENT` texts is ignored: it is a phrase of the language, or a template, and to compare
all texts that have it takes quadratic time. Texts of fewer than 4 words have no 4-gram and are compared by their words only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.data.fractions import Fractions, SplitPart

KEY = b"heedful split 1\n"  # another key gives another split
LENGTH = 4  # words of an n-gram
SHARED = 0.5  # of the 4-grams of the text that has fewer
FREQUENT = 100  # texts; a 4-gram in more of them is ignored
PAIRS = 1 << 24  # counted at a time
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd; of the polynomial hash of a 4-gram
LAST: dict[bytes, list[str]] = {}  # the leaders of the texts that were split last: a run reads its file several times

PUNCTUATION = re.compile(r"[^\w\s]")
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # scripts without spaces
WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")

Ids = NDArray[np.int64]
Item = TypeVar("Item")


def split_by_hash(texts: Sequence[str], fractions: Fractions) -> list[str]:
    """Return the part of each text: "train", "valid" or "test"."""
    key = fingerprint(texts)
    if key not in LAST:
        LAST.clear()
        LAST[key] = group_leaders(texts)
    parts = {leader: part_of(leader, fractions) for leader in set(LAST[key])}
    return [parts[leader] for leader in LAST[key]]


def select_part(items: Sequence[Item], texts: Sequence[str], part: SplitPart) -> list[Item]:
    """The items of a part; texts: the text of each item, by which it is assigned."""
    parts = split_by_hash(texts, part.fractions)
    return [item for item, name in zip(items, parts, strict=True) if name == part.name]


def part_of(words: str, fractions: Fractions) -> str:
    share = int.from_bytes(sha256(KEY + words.encode("utf-8", "surrogatepass")).digest()[:8]) / 2**64
    if share < fractions[0]:
        return "train"
    return "valid" if share < fractions[0] + fractions[1] or not fractions[2] else "test"


def fingerprint(texts: Sequence[str]) -> bytes:
    digest = sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8) + content)
    return digest.digest()


def group_leaders(texts: Sequence[str]) -> list[str]:
    """For each text the first text of its group in alphabetical order, in lower case and without punctuation."""
    normal = [normalize(text) for text in texts]
    distinct = sorted(set(normal))
    parents = list(range(len(distinct)))
    for a, b in near_duplicates(distinct):
        unite(parents, a, b)
    leaders = {text: distinct[root(parents, at)] for at, text in enumerate(distinct)}
    return [leaders[text] for text in normal]


def root(parents: list[int], at: int) -> int:
    while parents[at] != at:
        parents[at] = at = parents[parents[at]]  # halves the path
    return at


def unite(parents: list[int], a: int, b: int) -> None:
    """Join two groups; the smaller index, which is the first in alphabetical order, stays the root."""
    a, b = root(parents, a), root(parents, b)
    parents[max(a, b)] = min(a, b)


def normalize(text: str) -> str:
    """The words of a text in lower case, without punctuation; a text of punctuation alone is kept."""
    bare = PUNCTUATION.sub(lambda mark: "" if is_punctuation(mark[0]) else mark[0], text.lower())
    return " ".join(WORD.findall(bare)) or text


@lru_cache(maxsize=4096)
def is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PSC"  # punctuation, symbols, control characters; not the marks of letters


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of texts, by index, that share at least `SHARED` of the 4-grams of the text that has fewer."""
    grams, owners = distinct_grams(texts)
    starts = np.flatnonzero(np.concatenate(([True], grams[1:] != grams[:-1]))) if len(grams) else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, len(grams)))  # texts of each 4-gram
    kept = np.repeat(counts <= FREQUENT, counts)
    sizes = np.bincount(owners[kept], minlength=len(texts))  # 4-grams of each text
    keys, shared = count_pairs(owners, starts, counts, len(texts))
    a, b = keys // len(texts), keys % len(texts)
    alike = shared >= SHARED * np.minimum(sizes[a], sizes[b])
    return list(zip(a[alike].tolist(), b[alike].tolist(), strict=True))


def distinct_grams(texts: Sequence[str]) -> tuple[NDArray[np.uint64], Ids]:
    """The hash of every 4-gram of every text once, and the index of its text; sorted by hash, then by text."""
    hashes: dict[str, int] = {}
    rows = []
    for text in texts:
        words = text.split(" ")
        for word in words:
            if word not in hashes:
                hashes[word] = int.from_bytes(sha256(word.encode("utf-8", "surrogatepass")).digest()[:8])
        rows.append(np.fromiter((hashes[word] for word in words), np.uint64, len(words)))
    words_of = np.concatenate([np.zeros(0, np.uint64), *rows])
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    owners = np.repeat(np.arange(len(texts)), lengths)
    first = np.arange(max(len(words_of) - LENGTH + 1, 0))
    first = first[owners[first] == owners[first + LENGTH - 1]]  # a 4-gram is inside one text
    grams = np.zeros(len(first), np.uint64)
    for at in range(LENGTH):
        grams = grams * MULTIPLIER + words_of[first + at]  # modulo 2^64
    owners = owners[first]
    order = np.lexsort((owners, grams))
    grams, owners = grams[order], owners[order]
    new = np.ones(len(grams), bool)
    new[1:] = (grams[1:] != grams[:-1]) | (owners[1:] != owners[:-1])
    return grams[new], owners[new]


def count_pairs(owners: Ids, starts: Ids, counts: Ids, texts: int) -> tuple[Ids, Ids]:
    """For every pair of texts a < b that share a 4-gram: a x texts + b, and the number of 4-grams that they share."""
    keys, shared = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[Ids] = []
    for count in range(2, FREQUENT + 1):
        groups = starts[counts == count]
        left, right = np.triu_indices(count, 1)
        step = max(PAIRS // len(left), 1)
        for at in range(0, len(groups), step):
            members = owners[groups[at : at + step, None] + np.arange(count)]  # (4-grams, count), ascending
            waiting.append((members[:, left] * texts + members[:, right]).ravel())
            if sum(map(len, waiting)) >= PAIRS:
                keys, shared = merge_counts(keys, shared, waiting)
                waiting = []
    return merge_counts(keys, shared, waiting)


def merge_counts(keys: Ids, shared: Ids, waiting: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Add one to the count of every waiting key."""
    new, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *waiting]), return_counts=True)
    merged, where = np.unique(np.concatenate((keys, new)), return_inverse=True)
    return merged, np.bincount(where, np.concatenate((shared, counts)), len(merged)).astype(np.int64)
