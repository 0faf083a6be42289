"""Options are explained by the comments that stand beside them in the code."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from heedful.config import Run, read_run
from heedful.recipe_book import all_recipes, find_recipe
from heedful.schema import Config
from heedful.settings import schema_json, show
from heedful.settings.remarks import every_config, remark_on, remarks


class Base(Config):
    size: int = 1  # how many
    name: str = "a # b"


class Part(Base):
    size: int = 2  # how many, here
    long: Annotated[
        int,  # counted from 0
        Field(ge=0),
    ] = 3  # and no farther
    silent: int = 0  # fmt: skip


def test_a_comment_behind_a_field_is_its_remark() -> None:
    assert remarks(Base) == {"size": "how many"}
    assert remarks(Part) == {"size": "how many, here", "long": "counted from 0; and no farther"}


def test_what_is_shown_has_the_remark_of_the_very_option() -> None:
    lines = {line.split(" ")[0]: line for line in show(read_run(find_recipe("demo"), ["model.window=3"]))}
    assert lines["model.window"].endswith("# command line; restricted self-attention: how many tokens one sees; 0: all")
    assert remark_on(read_run(find_recipe("demo")).config, ("training", "nothing")) is None


def test_every_recipe_can_be_shown() -> None:
    for path in all_recipes().values():
        assert show(read_run(path))


def test_editors_are_told_the_remarks() -> None:
    schema = json.loads(schema_json(Run))
    named = {part.__name__: remarks(part) for part in every_config()}
    for name, part in schema["$defs"].items():
        for field, remark in named.get(name, {}).items():
            assert part["properties"][field]["description"] == remark
    assert "how many tokens one sees" in schema["$defs"]["TransformerConfig"]["properties"]["window"]["description"]
