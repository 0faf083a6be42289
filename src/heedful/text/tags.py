"""Tags such as <2de>: single tokens with information about the text, usually at its start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from heedful.errors import ConfigError
from heedful.text.specials import SPECIALS

SPACES = r"[^\S\x1c-\x1f]*"  # white space by the Unicode definition, as in the library
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


class TagSplitter:
    """Splits a text at its tags, which include the space after them: '<2de> a dog' -> [id of <2de>, 'a dog']."""

    def __init__(self, tags: Mapping[str, int]) -> None:
        names = sorted(map(re.escape, tags), key=len, reverse=True)  # the longer of two matching tags wins
        self.tags = tags
        self.pattern = re.compile(rf"({'|'.join(names)}){SPACES}") if tags else None

    def __call__(self, text: str) -> list[int | str]:
        if self.pattern is None:
            return [text]
        return [self.tags.get(part, part) for part in self.pattern.split(text) if part]
