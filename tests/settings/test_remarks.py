"""Options are explained by the comments that stand beside them in the code."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from configs import option_configs
from pydantic import Field

from heedful.config import Run, read_run
from heedful.models import MODELS
from heedful.recipes import all_recipes, find_recipe
from heedful.schema import Config, plain
from heedful.settings import kinds, schema_json, show
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
    lines = show(read_run(find_recipe("demo"), ["model.window=3"]))
    at = lines.index("model.window = 3                          # override")
    assert lines[at + 1 : at + 3] == [
        "    # restricted self-attention: number of tokens attended to; 0: all",
        "    # a whole number from 0 to 1,000,000",
    ]
    assert remark_on(read_run(find_recipe("demo")).config, ("training", "nothing")) is None


def test_every_option_of_every_config_is_explained() -> None:
    explained = [(part, name) for part in option_configs(Run) for name in part.model_fields]
    assert len(explained) > 200
    tables = ("model", "task", "tokenizer", "data", "training", "search")
    silent = [f"{part.__name__}.{name}" for part, name in explained if name not in remarks(part)]
    assert silent == [f"Run.{name}" for name in tables]


@pytest.mark.parametrize("family", MODELS)
def test_options_are_shown_with_their_choices_or_ranges_in_80_columns(family: str) -> None:
    settings = read_run(None, ["data.builtin=true", f"model.family={family}"])
    lines = show(settings)
    assert [line for line in lines if len(line) > 80] == []
    assert f"    # one of: {', '.join(MODELS)}"[:80] in "".join(lines).replace("    #   ", " ")
    shown = "\n".join(lines)
    for name, kind in kinds.fields(type(settings.config.model)).items():
        if kinds.choices(kind) and name != "family" and name in plain(settings.config.model):
            assert ", ".join(map(str, kinds.choices(kind))) in shown.replace("\n    #  ", "")


def test_every_recipe_is_shown_in_80_columns() -> None:
    for path in all_recipes().values():
        lines = show(read_run(path))
        assert lines
        assert [line for line in lines if len(line) > 80 and line.startswith((" ", "#"))] == []


def test_editors_are_told_the_remarks() -> None:
    schema = json.loads(schema_json(Run))
    named = {part.__name__: remarks(part) for part in every_config()}
    for name, part in schema["$defs"].items():
        for field, remark in named.get(name, {}).items():
            assert part["properties"][field]["description"] == remark
    assert "number of tokens attended to" in schema["$defs"]["TransformerConfig"]["properties"]["window"]["description"]
