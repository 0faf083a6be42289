"""A bilingual phrase: two small dependency trees and the alignment of their words.

    fixed("every:det day", "ogni:det giorno")                      words: `word:label` hangs on the one without a label
    Frame("subject:nsubj verb:root object:obj", "verb:root ...")   parts: the same notation one level higher

Two words are aligned if they share a letter of `keys`. A word without a counterpart is aligned with the counterpart of
its head; a part that one language leaves out (a dropped pronoun, the "do" of a question) is aligned with the counterpart
of its partner: the part named after `~`, else the part it depends on. So every word is aligned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

Links = tuple[tuple[int, int], ...]


class Token(NamedTuple):
    """One word of a tree under construction. If `leans`, its head is the next word rather than the root."""

    text: str
    label: str
    keys: str
    holds_mostly: bool = False


class Tree(NamedTuple):
    words: tuple[str, ...]
    steps: tuple[int, ...]  # from each word to its head, 0 at the root: a tree keeps them wherever it is moved
    labels: tuple[str, ...]
    root: int

    @property
    def heads(self) -> tuple[int, ...]:
        """The head of each word, -1 for the root."""
        return tuple([word + step if step else -1 for word, step in enumerate(self.steps)])


class Phrase(NamedTuple):
    source: Tree
    target: Tree
    links: Links

    @property
    def clues(self) -> tuple[str, ...]:
        """A sentence with this phrase has one of these words (an empty tuple is no constraint)."""
        return self.source.words[:1]


NOTHING = Tree((), (), (), -1)


def assemble(source: Sequence[Token], target: Sequence[Token]) -> Phrase:
    """Build a phrase of these words; an elided target word (it ends in an apostrophe) is joined to the next."""
    target = _elide(target)
    places: dict[str, list[int]] = {}
    for j, token in enumerate(target):
        for key in token.keys:
            places.setdefault(key, []).append(j)
    links = dict.fromkeys((i, j) for i, token in enumerate(source) for key in token.keys for j in places.get(key, ()))
    trees = _grow(source), _grow(target)
    return Phrase(*trees, _complete(list(links), *trees))


@cache
def fixed(source: str, target: str, label: str = "root") -> Phrase:
    """A phrase from its notation, e.g. fixed("in:case=n the:det=d morning=n", "la:det=d mattina=n", "obl").

    Without `=keys` words are aligned one to one, or, where one side is a single word, all with that word.
    """
    texts = source.split(), target.split()
    alike = "m" if min(map(len, texts)) == 1 else None
    assert alike or len(texts[0]) == len(texts[1]) or "=" in source, f"no alignment in {source!r} | {target!r}"
    here, there = ([_read(text, alike or chr(ord("a") + i)) for i, text in enumerate(side)] for side in texts)
    return with_labels(assemble(here, there), label)


def source_only(text: str) -> Phrase:
    """A word that the target leaves out."""
    return Phrase(Tree((text,), (0,), ("root",), 0), NOTHING, ())


def target_only(text: str) -> Phrase:
    """A word that the source leaves out."""
    return Phrase(NOTHING, Tree((text,), (0,), ("root",), 0), ())


def with_labels(phrase: Phrase, source: str, target: str | None = None) -> Phrase:
    """The phrase with these labels on its two roots (one label: on both), for frames that let it bring its own."""
    return Phrase(_relabel(phrase.source, source), _relabel(phrase.target, target or source), phrase.links)


def _relabel(tree: Tree, label: str) -> Tree:
    return tree._replace(labels=(*tree.labels[: tree.root], label, *tree.labels[tree.root + 1 :]))


def _read(notation: str, keys: str) -> Token:
    text, _, own_keys = notation.partition("=")
    text, _, label = text.partition(":")
    return Token(text, label or "root", own_keys or keys)


def _elide(tokens: Sequence[Token]) -> list[Token]:
    words: list[Token] = []
    for token in tokens:
        if words and words[-1].text.endswith("'"):
            article = words.pop()
            token = token._replace(text=article.text + token.text, keys=article.keys + token.keys)
        words.append(token)
    return words


def _grow(tokens: Sequence[Token]) -> Tree:
    root = [token.label for token in tokens].index("root")
    steps = [1 if token.holds_mostly else root - i for i, token in enumerate(tokens)]
    return Tree(tuple([t.text for t in tokens]), tuple(steps), tuple([t.label for t in tokens]), root)


def _complete(links: list[tuple[int, int]], source: Tree, target: Tree) -> Links:
    """Every word that has no counterpart takes that of its nearest aligned ancestor."""
    forward: dict[int, list[int]] = {}
    backward: dict[int, list[int]] = {}
    for i, j in links:
        forward.setdefault(i, []).append(j)
        backward.setdefault(j, []).append(i)
    more = [(i, j) for i in range(len(source.words)) if i not in forward for j in _of_ancestor(i, source.steps, forward)]
    more += [(i, j) for j in range(len(target.words)) if j not in backward for i in _of_ancestor(j, target.steps, backward)]
    return tuple(links + more)


def _of_ancestor(word: int, steps: Sequence[int], partners: Mapping[int, list[int]]) -> list[int]:
    while word not in partners:
        assert steps[word], "neither a word nor any of those above it is aligned"
        word += steps[word]
    return partners[word]


class Item(NamedTuple):
    """One part in a frame: its label (None: the phrase brings its own) and the part that it hangs on (None: the root)."""

    slot: str
    label: str | None
    parent: str | None


class Frame:
    """The order of the parts in both languages and the tree over them.

    `slot:label` hangs on the part labelled root, `slot:label@other` on another; `~other` names its partner in alignment.
    Parts that are not given are left out.
    """

    def __init__(self, source: str, target: str) -> None:
        self.partners: dict[str, str] = {}
        self.target = self._items(target)
        self.source = self._items(source)

    def _items(self, side: str) -> tuple[Item, ...]:
        matches = [re.fullmatch(r"(\w+)(?::(\w+))?(?:@(\w+))?(?:~(\w+))?", item) for item in side.split()]
        parts = [match.groups() for match in matches if match]
        assert len(parts) == len(matches), f"a part of {side!r} is not slot:label@parent~partner"
        root = next(slot for slot, label, _, _ in parts if label == "root")
        items = tuple(Item(slot, label, None if slot == root else parent or root) for slot, label, parent, _ in parts)
        for item, (_, _, _, partner) in zip(items, parts, strict=True):
            if partner:
                self.partners[item.slot] = partner
            elif item.parent:
                self.partners.setdefault(item.slot, item.parent)
        return items


Parts = Mapping[str, Phrase]


def source_words(frame: Frame, parts: Parts) -> list[str]:
    """The source side of `compose(frame, parts)`, without the rest of the work."""
    words: list[str] = []
    for slot, _, _ in frame.source:
        if slot in parts:
            words += parts[slot].source.words
    return words


def compose(frame: Frame, parts: Parts) -> Phrase:
    """Order the parts on both sides and shift their links accordingly."""
    source, source_starts = _lay(frame.source, parts, 0)
    target, target_starts = _lay(frame.target, parts, 1)
    links: list[tuple[int, int]] = []
    for slot, part in parts.items():
        if part.links:
            here, there = source_starts[slot], target_starts[slot]
            links += [(i + here, j + there) for i, j in part.links]
            continue
        partner = frame.partners[slot]  # one language leaves this part out
        other = parts[partner]
        if slot in source_starts:
            here, there = source_starts[slot], target_starts[partner]
            counterparts = [j + there for i, j in other.links if i == other.source.root]
            links += [(here + i, j) for i in range(len(part.source.words)) for j in counterparts]
        else:
            here, there = source_starts[partner], target_starts[slot]
            counterparts = [i + here for i, j in other.links if j == other.target.root]
            links += [(i, there + j) for j in range(len(part.target.words)) for i in counterparts]
    return Phrase(source, target, tuple(links))


def _lay(items: Iterable[Item], parts: Parts, side: Literal[0, 1]) -> tuple[Tree, dict[str, int]]:
    """One side of the parts in the order of the items: the tree over all words, and where each part starts."""
    words: list[str] = []
    steps: list[int] = []
    labels: list[str] = []
    starts: dict[str, int] = {}
    roots: dict[str, int] = {}
    for slot, label, _ in items:
        if slot in parts:
            tree = parts[slot][side]
            if tree.words:
                starts[slot] = start = len(words)
                roots[slot] = start + tree.root
                words += tree.words
                steps += tree.steps
                labels += tree.labels
                if label:
                    labels[start + tree.root] = label
    top = -1
    for slot, _, parent in items:
        if slot in roots:
            if parent:
                steps[roots[slot]] = roots[parent] - roots[slot]
            else:
                top = roots[slot]
    return Tree(tuple(words), tuple(steps), tuple(labels), top), starts
