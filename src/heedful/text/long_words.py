"""Words too long to learn pieces from: a run of letters, of digits, of other signs or of spaces beyond MAX_WORD characters.

Learning merges rescans a word for each merge in it, so one repetitive "word" of a million characters takes hours. No language
has such words; they are left out. Their characters are not: each is given once at the end, as a word of its own, so that the
alphabet stays complete.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator

from tokenizers import Regex, pre_tokenizers

from heedful.text.pipelines import DIGITS, LETTERS

MAX_WORD = 1000
BLOCK = 1 << 16  # characters looked at together; a word across two blocks may be twice as long

log = logging.getLogger(__name__)


def without_long_words(lines: Iterable[str]) -> Iterator[str]:
    """The same lines; a warning at the end tells how much was left out."""
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
        log.warning("a vocabulary is learned without %s characters, in words of more than %s", f"{left_out:,}", f"{MAX_WORD:,}")
        yield " ".join(sorted(alphabet - {" "}))
