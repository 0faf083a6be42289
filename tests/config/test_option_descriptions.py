"""Options are described by the docstrings below their fields."""

from __future__ import annotations

import json

import pytest
from configs import option_configs

from heedful.config import kinds
from heedful.config.base import Config, plain
from heedful.config.options import description_of
from heedful.config.read import schema_json, show
from heedful.models import MODELS
from heedful.runs.config import Run, read_run
from heedful.runs.recipes import all_recipes, find_recipe


class Base(Config):
    size: int = 1
    """How many."""
    name: str = "a"


class Part(Base):
    size: int = 2
    """How many, here."""


def test_the_docstring_below_a_field_is_its_description() -> None:
    assert description_of(Base(), ("size",)) == "How many."
    assert description_of(Part(), ("size",)) == "How many, here."
    assert description_of(Part(), ("name",)) is None


def test_an_option_is_shown_with_its_description_and_range() -> None:
    lines = show(read_run(find_recipe("demo"), ["model.window=3"]))
    at = lines.index("model.window = 3                          # override")
    assert lines[at + 1 : at + 3] == [
        "    # Restricted self-attention: number of tokens attended to; 0: all.",
        "    # an integer from 0 to 1,000,000",
    ]
    assert description_of(read_run(find_recipe("demo")).config, ("training", "nothing")) is None


def test_every_option_of_every_config_is_explained() -> None:
    explained = [(part, name) for part in option_configs(Run) for name in part.model_fields]
    assert len(explained) > 200
    tables = ("model", "task", "tokenizer", "data", "training", "search")
    silent = [f"{part.__name__}.{name}" for part, name in explained if not part.model_fields[name].description]
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


def test_the_json_schema_has_the_descriptions() -> None:
    schema = json.loads(schema_json(Run))
    assert "number of tokens attended to" in schema["$defs"]["TransformerConfig"]["properties"]["window"]["description"]
