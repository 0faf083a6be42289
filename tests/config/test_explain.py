"""Error messages for wrong settings, with a toy schema of tables, unions and lists."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from heedful.config.base import Config, Probability, Problem, plain, refuse, unused
from heedful.config.read import Settings, flatten, read_settings
from heedful.errors import ConfigError


class Unit(Enum):
    TOKENS = "tokens"
    ROWS = "rows"


class Attention(Config):
    family: Literal["attention"] = "attention"
    dim: PositiveInt = 64
    heads: PositiveInt | list[PositiveInt] = 4
    position: Literal["none", "learned", "rotary"] = "rotary"
    dropout: Probability = 0.1
    span: Literal["full", "local"] = "full"
    window: PositiveInt = 8
    note: str | None = None
    sizes: dict[Literal["encoder", "decoder"], PositiveInt] = Field(default_factory=dict)

    @model_validator(mode="after")
    def fits(self) -> Self:
        problems = unused(self, {"window": "model.span is 'full'"} if self.span == "full" else {})
        for heads in self.heads if isinstance(self.heads, list) else [self.heads]:
            if self.dim % heads:
                problems.append(Problem("heads", f"given {heads}, expected a divisor of dim = {self.dim}"))
        refuse(problems)
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
    unit: Unit = Unit.TOKENS
    names: list[str] = Field(["all"], min_length=1)
    note: str | None = None
    cache: Path | None = None


class Training(Config):
    steps: PositiveInt = 100
    warmup: NonNegativeInt = 10
    rate: PositiveFloat = 1e-3
    schedule: Literal["constant", "cosine", "linear"] = "constant"

    @field_validator("warmup")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("expected an even number")
        return value


class Run(Config):
    model: Annotated[Attention | Recurrent, Field(discriminator="family")] = Attention()
    data: Data
    training: Training = Training()
    seed: int = 1

    @model_validator(mode="after")
    def adds_up(self) -> Self:
        if self.training.warmup > self.training.steps:
            raise ValueError("training.warmup is longer than training.steps")
        return self


Read = Callable[..., Settings[Run]]
CORPUS = '[data.train]\nsource = "a.txt"\ntarget = "b.txt"\n'  # lines 1 to 3


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)

    def write_and_read(text: str, *overrides: str) -> Settings[Run]:
        Path("x.toml").write_text(text, encoding="utf-8")
        return read_settings(Run, Path("x.toml"), overrides)

    return write_and_read


WRONG = {
    "a wrong number": ("[training]\nsteps = 0\n", [], "x.toml:5: training.steps: given 0, expected an integer > 0"),
    "a fraction": ("", ["seed=1.5"], "override: seed: given 1.5, expected an integer"),
    "out of both bounds": (
        "",
        ["model={family='attention', dropout=1}"],
        "override: model.dropout: given 1, expected a number >= 0 and < 1",
    ),
    "an infinite number": ("", ["training.rate=inf"], "override: training.rate: given inf, expected a finite number"),
    "a flag for a number": (
        "[training]\nsteps = true\n",
        [],
        "x.toml:5: training.steps: given true, expected an integer > 0",
    ),
    "a flag in a list of numbers": (
        "[model]\nfamily = 'attention'\nheads = [4, true]\n",
        [],
        "x.toml:6: model.heads.1: given true, expected an integer > 0",
    ),
    "a number for a flag": ("", ["data.strict=2"], "override: data.strict: given 2, expected true or false"),
    "a mistyped key": (
        "[model]\nfamily = 'attention'\npostion = 'none'\n",
        [],
        "x.toml:6: model.postion: unknown key\n\nhint: did you mean 'position'?",
    ),
    "a mistyped table": ("", ["modle.dim=8"], "override: modle: unknown key\n\nhint: did you mean 'model'?"),
    "a key of several other tables": (
        "",
        ["note=x"],
        "override: note: unknown key; expected one of: model, data, training, seed",
    ),
    "a key of another table": (
        "",
        ["training.strict=true"],
        "override: training.strict: unknown key; expected one of: steps, warmup, rate, schedule",
    ),
    "a key without its table": (
        "",
        ["steps=3"],
        "override: steps: unknown key\n\nhint: did you mean 'training.steps'?",
    ),
    "a key like no other": (
        "[training]\nzzz = 1\n",
        [],
        "x.toml:5: training.zzz: unknown key; expected one of: steps, warmup, rate, schedule",
    ),
    "a mistyped choice": (
        "[training]\nschedule = 'Cosin'\n",
        [],
        "x.toml:5: training.schedule: given 'Cosin', expected one of: constant, cosine, linear\n\nhint: did you mean 'cosine'?",
    ),
    "a choice in capitals": (
        "",
        ["training.schedule=LINEAR"],
        "override: training.schedule: given 'LINEAR', expected one of: constant, cosine, linear\n\n"
        "hint: did you mean 'linear'?",
    ),
    "a mistyped choice of an enum": (
        "",
        ["data.unit=token"],
        "override: data.unit: given 'token', expected one of: tokens, rows\n\nhint: did you mean 'tokens'?",
    ),
    "a mistyped choice beside a number": (
        "",
        ["data.every=epoc"],
        "override: data.every: given 'epoc', expected an integer > 0 or 'epoch' or 'never'\n\nhint: did you mean 'epoch'?",
    ),
    "a mistyped key of a dict": (
        "",
        ["model.family=attention", "model.sizes.encodr=3"],
        "override: model.sizes.encodr: unknown key; expected one of: encoder, decoder\n\nhint: did you mean 'encoder'?",
    ),
    "neither branch of a union": (
        "",
        ["model={family='attention', heads='many'}"],
        "override: model.heads: given 'many', expected an integer > 0 or a list of integers > 0",
    ),
    "an item of a list": (
        "[model]\nfamily = 'attention'\nheads = [\n  4,\n  0,\n]\n",
        [],
        "x.toml:6: model.heads.1: given 0, expected an integer > 0",
    ),
    "no tag": ("[model]\ndim = 8\n", [], "x.toml:4: model.family: missing, expected one of: attention, recurrent"),
    "a mistyped tag": (
        "[model]\nfamily = 'recurent'\n",
        [],
        "x.toml:5: model.family: given 'recurent', expected one of: attention, recurrent\n\nhint: did you mean 'recurrent'?",
    ),
    "a key missing in the tagged table": (
        "[model]\nfamily = 'recurrent'\n",
        [],
        "x.toml:4: model.dim: missing, expected an integer > 0",
    ),
    "a key of the other tagged table": (
        "[model]\nfamily = 'recurrent'\ndim = 8\nheads = 2\n",
        [],
        "x.toml:7: model.heads: unknown key; expected one of: family, dim, cell",
    ),
    "a scalar for a table": ("", ["training=3"], "override: training: given 3, expected a table"),
    "a scalar for a table or a list of them": (
        "",
        ["data.train=3"],
        "override: data.train: given 3, expected a table or a list of tables",
    ),
    "a table for a scalar": ("", ["seed.x=3"], "override: seed: given a table, expected an integer"),
    "a string for a list": (
        "",
        ["data.names=en"],
        "override: data.names: given 'en', expected a list of one or more strings",
    ),
    "an empty list": (
        "",
        ["data.names=[]"],
        "override: data.names: given [], expected a list of one or more strings",
    ),
    "a list too short": (
        "languages = ['en']\n",
        [],
        "x.toml:4: data.train.languages: given ['en'], expected a list of 2 strings",
    ),
    "a list too long": (
        "languages = ['en', 'de', 'it']\n",
        [],
        "x.toml:4: data.train.languages: given ['en', 'de', 'it'], expected a list of 2 strings",
    ),
    "one table where the schema makes a list of it": (
        "[data.valid]\nsource = 3\ntarget = 'b'\n",
        [],
        "x.toml:5: data.valid.source: given 3, expected a string",
    ),
    "a validator of one field": (
        "",
        ["training.warmup=3"],
        "override: training.warmup: given 3, expected an even number",
    ),
    "a validator of the whole": (
        "",
        ["training.steps=4"],
        "override: training.steps=4: training.warmup is longer than training.steps",
    ),
    "an override that the file's own options do not allow": (
        "[model]\nfamily = 'attention'\ndim = 32\nheads = [4]\n",
        ["model.dim=30"],
        "override: model.dim=30 conflicts with x.toml:7: model.heads: given 4, expected a divisor of dim = 30",
    ),
    "an option without effect": (
        "[model]\nfamily = 'attention'\nwindow = 8\n",
        [],
        "x.toml:6: model.window: given 8, but has no effect because model.span is 'full'; remove it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_problem_is_one_sentence(name: str, read: Read) -> None:
    text, overrides, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read(CORPUS + text, *overrides)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_options_of_the_file_that_an_override_leaves_without_effect_are_dropped(read: Read) -> None:
    text = CORPUS + "[model]\nfamily = 'attention'\nspan = 'local'\nwindow = 8\n"
    assert "model.window" in flatten(plain(read(text).config))
    assert "model.window" not in flatten(plain(read(text, "model.span=full").config))
    with pytest.raises(ConfigError, match=r"override: model.window: given 9, but has no effect"):
        read(text, "model.span=full", "model.window=9")  # an override is not dropped
    with pytest.raises(ConfigError, match=r"x.toml:6: model.window: given 8, but has no effect"):
        read(CORPUS + "[model]\nfamily = 'attention'\nwindow = 8\n", "seed=2")  # nor an option that had no effect before


def test_all_problems_are_listed_in_the_order_of_the_file_and_then_of_the_command_line(read: Read) -> None:
    text = """seed = "x"
[model]
family = "attention"
dim = 30
heads = [4, 3, 7]
window = 8
[training]
schedule = "cosin"
rate = 0
stepps = 3
[[data.train]]
source = "a.txt"
[[data.train]]
source = "b.txt"
target = "c.txt"
wieght = 2
"""
    with pytest.raises(ConfigError) as caught:
        read(text, "training.warmup=3", "nonsense", "data.strict=maybe", "data.every=0")
    assert (
        str(caught.value)
        == """13 problems in x.toml and in the overrides:
  x.toml:1: seed: given 'x', expected an integer
  x.toml:5: model.heads: given 4, expected a divisor of dim = 30
  x.toml:5: model.heads: given 7, expected a divisor of dim = 30
  x.toml:6: model.window: given 8, but has no effect because model.span is 'full'; remove it
  x.toml:8: training.schedule: given 'cosin', expected one of: constant, cosine, linear; did you mean 'cosine'?
  x.toml:9: training.rate: given 0, expected a number > 0
  x.toml:10: training.stepps: unknown key; did you mean 'steps'?
  x.toml:11: data.train.0.target: missing, expected a string
  x.toml:16: data.train.1.wieght: unknown key; did you mean 'weight'?
  override: given 'nonsense', expected key=value, as in training.steps=200; did you mean 'nonsense=VALUE'?
  override: data.strict: given 'maybe', expected true or false
  override: data.every: given 0, expected an integer > 0 or 'epoch' or 'never'
  override: training.warmup: given 3, expected an even number"""
    )


def test_without_a_file_a_missing_option_is_reported_for_the_command_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(Run, None, [])
    assert str(caught.value) == "override: data: missing, expected a table"
    with pytest.raises(ConfigError) as caught:
        read_settings(Run, None, ["data.train.weight=2"])
    assert str(caught.value) == (
        "2 problems in the overrides:\n"
        "  override: data.train.source: missing, expected a string\n"
        "  override: data.train.target: missing, expected a string"
    )
