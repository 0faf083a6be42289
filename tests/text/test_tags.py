"""Tags: allowed names, and splitting of text."""

from __future__ import annotations

import pytest

from heedful.errors import ConfigError
from heedful.text.tags import TagSplitter, check_tags


@pytest.mark.parametrize("tags", [["de"], [""], ["<2 de>"], ["<>"], ["<s>"], ["<unk>"], ["<a><b>"], ["<2de>", "<2de>"]])
def test_tags_that_text_could_contain_are_errors(tags: list[str]) -> None:
    with pytest.raises(ConfigError):
        check_tags(tags)


def test_tags_in_angle_brackets_are_allowed_and_matched() -> None:
    tags = ["<2de>", "<2fr>", "<formal>", "<mask>"]
    check_tags(tags)
    assert TagSplitter({tag: id for id, tag in enumerate(tags)})("".join(tags)) == [0, 1, 2, 3]


def test_text_is_split_at_tags_including_the_space_after_them() -> None:
    split = TagSplitter({"<2de>": 7, "<x>": 8})
    assert split("<2de> a dog") == [7, "a dog"]
    assert split("<x><2de>  a <x> b") == [8, 7, "a ", 8, "b"]
    assert split("no tag <2fr>") == ["no tag <2fr>"]
    assert TagSplitter({})("<2de> a") == ["<2de> a"]


def test_the_mask_takes_the_spaces_on_both_sides() -> None:
    split = TagSplitter({"<2de>": 7, "<mask>": 8})
    assert split("a \t <mask>\u00a0 b <2de> <mask><mask> <mask>") == ["a", 8, "b ", 7, 8, 8, 8]
    text = "a  <mask> b"
    assert [text[part.start : part.end] for part in split.parts(text)] == ["a", "<mask>", "b"]
