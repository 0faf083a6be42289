"""Tags such as <2de>: single tokens with information about the text, usually at its start.

The mask token <mask> is a tag as well. It stands for a word, so it takes the spaces on both of its sides:

    the <mask> sat -> ids of "the", id of <mask>, ids of "sat" after a space
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from heedful.errors import ConfigError
from heedful.text.specials import MASK, SPECIALS

# White space by the Unicode definition, as in the library; str.isspace also accepts the separators U+001C to U+001F.
WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and not "\x1c" <= c <= "\x1f")
TAG = re.compile(r"<[^\s<>]+>")


def check_tags(tags: Sequence[str]) -> None:
    """Raise unless every tag is a name in angle brackets: tags are matched anywhere, so they must differ from text."""
    for tag in tags:
        if not TAG.fullmatch(tag) or tag in SPECIALS:
            raise ConfigError(
                f"tag {tag!r} cannot be used; expected a name in angle brackets, without spaces, "
                f"other than {', '.join(SPECIALS)}",
                hint="write it like '<2de>'",
            )
    if len(set(tags)) < len(tags):
        raise ConfigError(f"the tags {', '.join(tags)} contain a duplicate; expected each once")


class Part(NamedTuple):
    """A tag, as its id, or the text between two tags; `start` is its first character in the whole text."""

    content: int | str
    start: int
    end: int


class TagSplitter:
    """Splits a text at its tags, which include the space after them: '<2de> a dog' -> [id of <2de>, 'a dog'].
    The mask token includes the spaces on both sides."""

    def __init__(self, tags: Mapping[str, int]) -> None:
        names = sorted(map(re.escape, tags), key=len, reverse=True)  # the longer of two matching tags wins
        self.tags = tags
        self.pattern = re.compile(rf"({'|'.join(names)})[{WHITE_SPACE}]*") if tags else None

    def __call__(self, text: str) -> list[int | str]:
        return [text] if self.pattern is None else [part.content for part in self.parts(text)]

    def parts(self, text: str) -> Iterator[Part]:
        """Yield tags and the text between them, with their places."""
        begin = 0
        for match in self.pattern.finditer(text) if self.pattern else ():
            before = text[begin : match.start()]
            if match[1] == MASK:
                before = before.rstrip(WHITE_SPACE)
            if before:
                yield Part(before, begin, begin + len(before))
            yield Part(self.tags[match[1]], match.start(1), match.end(1))
            begin = match.end()
        if begin < len(text):
            yield Part(text[begin:], begin, len(text))
