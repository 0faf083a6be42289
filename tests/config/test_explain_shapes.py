"""Error messages for unusual schemas: unions without a tag, lists, a recursive config."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt

from heedful.config.base import Config
from heedful.config.read import read_settings
from heedful.errors import ConfigError


def test_tables_of_an_untagged_union_are_distinguished_by_their_keys() -> None:
    class Files(Config):
        source: str
        target: str

    class Table(Config):
        tsv: str
        columns: tuple[int, str] = (0, "x")

    class Either(Config):
        corpus: Files | Table

    for override, message in {
        "corpus={tsv='a', column=[1, 2]}": "override: corpus.column: unknown key\n\nhint: did you mean 'columns'?",
        "corpus={target='a'}": "override: corpus.source: missing, expected a string",
        "corpus={tsv='a', columns=[1]}": (
            "override: corpus.columns: given [1], expected a list of 2 values: an integer, a string"
        ),
        "corpus={tsv='a', columns=[1, 2]}": "override: corpus.columns.1: given 2, expected a string",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_settings(Either, None, [override])
        assert str(caught.value) == message


def test_tables_with_an_undeclared_tag_are_distinguished_by_it() -> None:
    class Cosine(Config):
        kind: Literal["cosine"] = "cosine"
        peak: float = 1.0

    class Linear(Config):
        kind: Literal["linear"] = "linear"
        slope: Annotated[int, Field(ge=8, multiple_of=8)] = 8

    class Either(Config):
        schedule: Cosine | Linear | str = "none"

    for override, message in {
        "schedule={kind='linear', peak=3}": "override: schedule.peak: unknown key; expected one of: kind, slope",
        "schedule={kind='linaer'}": (
            "override: schedule.kind: given 'linaer', expected one of: cosine, linear\n\nhint: did you mean 'linear'?"
        ),
        "schedule={kind=[1]}": "override: schedule.kind: given [1], expected one of: cosine, linear",
        "schedule={slope=9}": ("override: schedule.slope: given 9, expected an integer >= 8 that is a multiple of 8"),
        "schedule=[1]": "override: schedule: given [1], expected a table or a string",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_settings(Either, None, [override])
        assert str(caught.value) == message


def test_errors_in_a_recursive_config_are_explained() -> None:
    class Tree(Config):
        left: Tree | None = None
        size: PositiveInt = 1

    Tree.model_rebuild(_types_namespace={"Tree": Tree, "PositiveInt": PositiveInt})
    with pytest.raises(ConfigError) as caught:
        read_settings(Tree, None, ["left.left.size=0", "zzz=1"])
    assert str(caught.value) == (
        "2 problems in the overrides:\n"
        "  override: left.left.size: given 0, expected an integer > 0\n"
        "  override: zzz: unknown key; expected one of: left, size"
    )


def test_a_wrong_item_is_reported_once_and_not_as_a_short_list() -> None:
    class Stack(Config):
        layers: tuple[Literal["lstm", "gru"], ...] = Field(("gru",), min_length=1)

    for given, expected in {
        "['lsm']": "layers.0: given 'lsm', expected one of: lstm, gru\n\nhint: did you mean 'lstm'?",
        "[]": "layers: given [], expected a list of one or more of: lstm, gru",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_settings(Stack, None, [f"layers={given}"])
        assert str(caught.value) == f"override: {expected}"
