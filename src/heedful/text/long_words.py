"""Remove words that are too long for tokenizer training: runs of letters, digits, other characters or spaces over MAX_WORD.

BPE training rescans a word for each merge in it, so one repetitive "word" of a million characters takes hours. Their
characters are kept: each is yielded once at the end, as a word of its own, so that the alphabet stays complete.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator

from tokenizers import Regex, pre_tokenizers

from heedful.text.pipelines import DIGITS, LETTERS

MAX_WORD = 1000
BLOCK = 1 << 16  # characters searched at a time; a word across two blocks may be twice as long

log = logging.getLogger(__name__)


def remove_long_words(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without long words; log a warning at the end with the number of removed characters."""
    suspicious = re.compile(rf"[^ ]{{{MAX_WORD + 1},}}| {{{MAX_WORD + 1},}}")
    kinds = [f"[{LETTERS}]", f"[{DIGITS}]", f"[^ {LETTERS}{DIGITS}]", " "]
    long_word = Regex("|".join(f"(?<!{kind}){kind}{{{MAX_WORD + 1},}}" for kind in kinds))
    remove = pre_tokenizers.Split(long_word, "removed")
    alphabet: set[str] = set()
    left_out = 0
    for line in lines:
        if len(line) <= MAX_WORD or not suspicious.search(line):
            yield line
            continue
        kept = ""
        for begin in range(0, len(line), BLOCK):
            block = line[begin : begin + BLOCK]
            words = [word for word, _ in remove.pre_tokenize_str(block)]
            missing = len(block) - sum(map(len, words))
            if missing:
                alphabet.update(block)
                left_out += missing
            kept += " ".join(words)
        yield kept
    if left_out:
        log.warning(
            "tokenizer training ignores %s characters in words of more than %s characters", f"{left_out:,}", f"{MAX_WORD:,}"
        )
        yield " ".join(sorted(alphabet - {" "}))
