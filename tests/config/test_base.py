"""The base config: explicit options, options without effect, and several problems from one validator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, ValidationError, model_validator

from heedful.config.base import Config, Problem, Problems, Untagged, format_value, is_set, plain, refuse, refuse_unused
from heedful.config.read import read_settings
from heedful.errors import ConfigError


class Search(Config):
    kind: Literal["greedy", "beam"] = "greedy"
    beam: int = 4
    penalty: float = 1.0

    @model_validator(mode="after")
    def has_effect(self) -> Self:
        if self.kind == "greedy":
            refuse_unused(self, {"beam": "kind is 'greedy'", "penalty": "kind is 'greedy'"})
        return self


class Whole(Config):
    task: str = "translation"
    search: Search = Search(kind="beam")
    folders: tuple[Path, ...] = (Path("a/b"),)

    @model_validator(mode="after")
    def has_effect(self) -> Self:
        if self.task == "labels":
            refuse_unused(self, {"search.penalty": "labels are not searched"})
        return self


def test_only_options_that_were_set_are_explicit() -> None:
    whole = Whole(search=Search(kind="beam", beam=4))
    assert is_set(whole, "search") and is_set(whole, "search.beam")
    assert not is_set(whole, "task") and not is_set(whole, "search.penalty")


def test_all_options_without_effect_are_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        Search(beam=4, penalty=0.5)
    error = caught.value.errors()[0]["ctx"]["error"]
    assert isinstance(error, Problems)
    assert error.problems == (
        Problem("beam", "given 4, but has no effect because kind is 'greedy'; remove it", has_no_effect=True),
        Problem("penalty", "given 0.5, but has no effect because kind is 'greedy'; remove it", has_no_effect=True),
    )


def test_a_config_reports_options_without_effect_in_its_parts() -> None:
    with pytest.raises(ValidationError, match=r"search.penalty: given 2.0, but has no effect because labels"):
        Whole(task="labels", search=Search(kind="beam", penalty=2.0))


def test_the_plain_tree_omits_only_options_without_effect() -> None:
    assert plain(Search()) == {"kind": "greedy"}
    assert plain(Whole(task="labels"))["search"] == {"kind": "beam", "beam": 4}
    assert plain(Whole())["search"] == {"kind": "beam", "beam": 4, "penalty": 1.0}


def test_the_plain_tree_validates_to_the_same_config() -> None:
    for config in (Whole(), Whole(task="labels"), Whole(search=Search())):
        assert Whole.model_validate(plain(config)) == config
    assert plain(Whole())["folders"] == ["a/b"]


def test_refuse_raises_only_with_problems() -> None:
    refuse([])
    with pytest.raises(Problems, match="a: wrong; b: too"):
        refuse([Problem("a", "wrong"), Problem("b", "too")])


def test_a_config_is_frozen_and_rejects_unknown_keys() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Search().beam = 3
    with pytest.raises(ValidationError, match="extra"):
        Search.model_validate({"baem": 3})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("a'b", '"a\'b"'),
        ([1, False, {"a": 1}], "[1, false, a table]"),
        (None, "nothing"),
        ("x" * 200, "'" + "x" * 75 + " …'"),
    ],
)
def test_values_are_formatted_as_in_toml(value: object, text: str) -> None:
    assert format_value(value) == text


class Short(Config):
    kind: Literal["short"] = "short"
    size: int = 1


class Long(Config):
    kind: Literal["long"] = "long"
    size: int = 2
    tail: int = 3


class Holder(Config):
    part: Annotated[Short | Long, Field(discriminator="kind"), Untagged("kind", "short")] = Short()


def test_a_table_without_its_tag_has_the_default_kind() -> None:
    assert Holder.model_validate({"part": {"size": 5}}).part == Short(size=5)
    assert Holder.model_validate({"part": {"kind": "long"}}).part == Long()
    assert Holder.model_validate({"part": Long(tail=4)}).part == Long(tail=4)
    with pytest.raises(ConfigError, match=r"part\.tail: unknown key; expected one of: kind, size"):
        read_settings(Holder, None, ["part.tail=1"])
    with pytest.raises(ConfigError, match=r"part\.size: given 'x', expected an integer"):
        read_settings(Holder, None, ["part.size=x"])
