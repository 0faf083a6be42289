"""Reading settings: values and origins; showing, storing and comparing them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from heedful.config.base import Config, plain, refuse_unused
from heedful.config.read import MISSING, Settings, difference, flatten, read_settings, schema_json, show
from heedful.config.toml import write_toml


class Attention(Config):
    family: Literal["attention"] = "attention"
    heads: PositiveInt | list[PositiveInt] = 4
    span: Literal["full", "local"] = "full"
    window: PositiveInt = 8

    @model_validator(mode="after")
    def has_effect(self) -> Self:
        if self.span == "full":
            refuse_unused(self, {"window": "model.span is 'full'"})
        return self


class Recurrent(Config):
    family: Literal["recurrent"]
    dim: PositiveInt
    cell: Literal["gru", "lstm"] = "gru"


class Corpus(Config):
    source: str
    target: str
    weight: PositiveFloat = 1.0
    languages: tuple[str, str] | None = None


class Data(Config):
    train: Corpus | list[Corpus]
    valid: Annotated[tuple[Corpus, ...], BeforeValidator(lambda v: [v] if isinstance(v, dict) else v)] = ()
    strict: bool = False
    every: PositiveInt | Literal["epoch", "never"] = "epoch"
    names: tuple[str, ...] = ("all",)
    note: str | None = None
    cache: Path | None = None


class Training(Config):
    steps: PositiveInt = 100
    warmup: PositiveInt = 10
    rate: PositiveFloat = 1e-3
    schedule: Literal["constant", "cosine", "linear"] = "constant"


class Run(Config):
    model: Annotated[Attention | Recurrent, Field(discriminator="family")] = Attention()
    data: Data
    training: Training = Training()
    seed: int = 1


Read = Callable[..., Settings[Run]]
CORPUS = '[data.train]\nsource = "a.txt"\ntarget = "b.txt"\n'  # lines 1 to 3


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)

    def write_and_read(text: str, *overrides: str) -> Settings[Run]:
        Path("x.toml").write_text(text, encoding="utf-8")
        return read_settings(Run, Path("x.toml"), overrides)

    return write_and_read


def test_overrides_of_all_forms_are_applied(read: Read) -> None:
    config = read(
        CORPUS,
        "model={family = 'attention', heads = 2}",
        "model.heads=[4,4,8]",
        "training.rate=1e-4",
        "training.schedule=cosine",
        "data.strict=true",
        "data.train.source=other/c.txt",
        "data.train.languages=[en,no]",
        "data.note=1.10",
        "data.names=[2016]",
        "data.names.0=2017-01-01",
        "data.cache = a = b",
        "data.every=12",
    ).config
    assert isinstance(config.model, Attention) and config.model.heads == [4, 4, 8]
    assert (config.training.rate, config.training.schedule) == (1e-4, "cosine")
    assert config.data.train == Corpus(source="other/c.txt", target="b.txt", languages=("en", "no"))
    assert (config.data.strict, config.data.every, config.data.cache) == (True, 12, Path("a = b"))
    assert (config.data.note, config.data.names) == ("1.10", ("2017-01-01",))


def test_every_option_has_its_origin(read: Read) -> None:
    text = 'model.family = "recurrent"\nmodel.dim = 8\n\n[data]\ntrain = {source = "a", target = "b"}\nstrict = true\n'
    settings = read(text + '[data.valid]\nsource = "c"\ntarget = "d"\n', "model.dim=16", "data.valid.weight=2")
    assert set(settings.origins) == set(flatten(plain(settings.config)))
    assert {leaf: origin for leaf, origin in settings.origins.items() if origin != "default"} == {
        "model.family": "file x.toml:1",
        "model.dim": "override",
        "data.train.source": "file x.toml:5",
        "data.train.target": "file x.toml:5",
        "data.strict": "file x.toml:6",
        "data.valid.0.source": "file x.toml:8",
        "data.valid.0.target": "file x.toml:9",
        "data.valid.0.weight": "override",
    }


def test_a_table_replaced_on_the_command_line_no_longer_comes_from_the_file(read: Read) -> None:
    settings = read(CORPUS + "[training]\nsteps = 7\nwarmup = 2\n", "training={steps = 20}")
    assert settings.config.training == Training(steps=20, warmup=10)
    assert settings.origins["training.steps"] == "override"
    assert settings.origins["training.warmup"] == "default"


def test_settings_are_shown_aligned_and_read_back_as_the_same_config(read: Read) -> None:
    settings = read(CORPUS + "[model]\nfamily = 'recurrent'\ndim = 256\n", "training.steps=200")
    lines = show(settings)
    assert lines[:6] == [
        'model.family = "recurrent"                # file x.toml:5',
        "    # one of: attention, recurrent",
        "model.dim = 256                           # file x.toml:6",
        "    # an integer > 0",
        'model.cell = "gru"                        # default',
        "    # one of: gru, lstm",
    ]
    assert "# data.train.languages is not set         # default" in lines
    assert Run.model_validate(tomllib.loads("\n".join(lines))) == settings.config


@pytest.mark.parametrize("overrides", [[], ["model={family='attention', span='local', window=4}"], ["data.every=3"]])
def test_a_stored_config_reads_back_as_the_same_config(overrides: list[str], read: Read) -> None:
    config = read(CORPUS + '[[data.valid]]\nsource = "c"\ntarget = "d"\n', *overrides).config
    assert read(write_toml(plain(config))).config == config


def test_a_difference_lists_the_options_that_differ() -> None:
    before = {"model": {"dim": 8, "heads": [1, 2]}, "data": [{"a": 1}, {"a": 2}], "same": None, "x": {}}
    after = {"model": {"dim": 9, "heads": [1, 2]}, "data": [{"a": 1}], "new": 0.5, "x": {}}
    assert difference(before, after) == [("model.dim", 8, 9), ("data.1.a", 2, MISSING), ("new", MISSING, 0.5)]
    assert difference(before, before) == []
    assert repr(MISSING) == "MISSING"


def test_the_json_schema_has_a_title_and_sorted_keys() -> None:
    described: dict[str, Any] = json.loads(schema_json(Run))
    assert described["title"] == "Run"
    assert described["required"] == ["data"]
    assert described["$defs"]["Training"]["properties"]["schedule"]["enum"] == ["constant", "cosine", "linear"]
    assert list(described) == sorted(described)
