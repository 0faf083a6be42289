"""Descriptions of types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from annotated_types import Interval, Len
from pydantic import Field, NonNegativeFloat, PositiveInt, StrictBool

from heedful.config.base import Config, Probability
from heedful.config.kinds import describe
from heedful.data.sources import Tag


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Part(Config):
    size: int = 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "an integer"),
        (PositiveInt, "an integer > 0"),
        (PositiveInt | None, "an integer > 0"),
        (Optional[str], "a string"),  # noqa: UP045
        (Probability, "a number >= 0 and < 1"),
        (NonNegativeFloat, "a number >= 0"),
        (Annotated[float, Interval(gt=0.5, le=2)], "a number > 0.5 and <= 2"),
        (Annotated[int, Field(multiple_of=8)], "an integer that is a multiple of 8"),
        (Annotated[str, Field(min_length=1)], "a string of one or more characters"),
        (Annotated[str, Field(min_length=2, max_length=3)], "a string of 2 to 3 characters"),
        (Annotated[str, Field(pattern="<.*>")], "a string that matches '<.*>'"),
        (Tag, "a string that is one word, without spaces"),
        (StrictBool, "true or false"),
        (Path, "a path"),
        (date, "a date"),
        (Any, "a value"),
        (Literal["a", "b"], "one of: a, b"),
        (Color, "one of: red, blue"),
        (Part, "a table"),
        (dict[str, int], "a table"),
        (Mapping[str, int], "a table"),
        (list, "a list of values"),
        (list[PositiveInt], "a list of integers > 0"),
        (Sequence[list[float]], "a list of lists of numbers"),
        (set[Literal["a", "b"]], "a list of any of: a, b"),
        (Annotated[list[Literal["a", "b"]], Field(min_length=1)], "a list of one or more of: a, b"),
        (Annotated[list[str], Len(1)], "a list of one or more strings"),
        (Annotated[list[str], Len(2)], "a list of at least 2 strings"),
        (Annotated[list[str], Len(2, 4)], "a list of 2 to 4 strings"),
        (Annotated[list[str], Len(0, 4)], "a list of at most 4 strings"),
        (tuple[int, ...], "a list of integers"),
        (tuple[str, str], "a list of 2 strings"),
        (tuple[str, int], "a list of 2 values: a string, an integer"),
        (int | list[int], "an integer or a list of integers"),
        (Part | list[Part] | None, "a table or a list of tables"),
        (PositiveInt | Literal["auto", True], "an integer > 0 or 'auto' or true"),
    ],
)
def test_a_type_is_described_in_words(kind: Any, words: str) -> None:
    assert describe(kind) == words
