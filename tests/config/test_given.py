"""Given values: forms of overrides, invalid files, and the places of values."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config.base import Config
from heedful.config.given import parse_value, read_file
from heedful.config.read import read_settings
from heedful.errors import ConfigError


class Corpus(Config):
    source: str = ""
    weight: float = 1.0
    note: str = ""


class Data(Config):
    train: Corpus = Corpus()
    names: tuple[str, ...] = ()
    strict: bool = False


class Run(Config):
    data: Data = Data()
    seed: int = 1


CORPUS = '[data.train]\nsource = "a.txt"\nnote = "first"\n'  # lines 1 to 3

WRONG = {
    "no equals sign": (
        "",
        ["seed"],
        "override: given 'seed', expected key=value, as in training.steps=200\n\nhint: did you mean 'seed=VALUE'?",
    ),
    "dashes": (
        "",
        ["--seed=3"],
        "override: given '--seed=3', expected key=value, as in training.steps=200\n\nhint: did you mean 'seed=3'?",
    ),
    "no key": ("", ["=3"], "override: given '=3', expected key=value, as in training.steps=200"),
    "no value": (
        "",
        ["seed="],
        "override: seed: given nothing after '=', expected a value; to unset an option, remove it from the recipe",
    ),
    "through a scalar": (
        "",
        ["data.train.source.name=c.txt"],
        "override: data.train.source.name: given 'c.txt', but data.train.source is 'a.txt', not a table (x.toml:2)",
    ),
    "through a scalar of the override": (
        "",
        ["seed=3", "seed.x=4"],
        "override: seed.x: given '4', but seed is 3, not a table (override)",
    ),
    "an item that is not there": (
        "",
        ["data.names=[a]", "data.names.1=b"],
        "override: data.names.1: given 'b', but data.names is a list of 1, with items numbered from 0 (override)",
    ),
    "text without quotes": (
        "weight = much # or not\n",
        [],
        'x.toml:4:10: not valid TOML: invalid value\n\nhint: put strings in quotes: weight = "much"',
    ),
    "a capital": ("[data]\nstrict = True\n", [], "x.toml:5:10: not valid TOML: invalid value\n\nhint: write strict = true"),
    "an open heading": (
        "[data\nstrict = true\n",
        [],
        "x.toml:4:6: not valid TOML: expected ']' at the end of a table declaration",
    ),
    "an open string": ('note = """\n', [], "x.toml:4:11: not valid TOML: unterminated string"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_file_or_override_is_a_clear_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, overrides, message = WRONG[name]
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(CORPUS + text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_settings(Run, Path("x.toml"), overrides)
    assert str(caught.value) == message


def test_the_error_names_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("multi30k.toml").write_bytes(b"seed = 1\nnote = '\xe9'\n")
    for name, message in {
        "multi3k.toml": "multi3k.toml: no such file; expected settings in TOML\n\nhint: did you mean 'multi30k.toml'?",
        "multi30k.toml": "multi30k.toml:2: byte 0xe9 is not UTF-8; expected settings in TOML",
        ".": ".: cannot be read (Is a directory); expected settings in TOML",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_file(Path(name))
        assert str(caught.value) == message


def test_line_ends_and_byte_order_mark_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (CORPUS + "weight = 2 # two\n[data]\nstrict = true\n").replace("\n", "\r\n").encode())
    settings = read_settings(Run, path, [])
    assert settings.origins["data.train.weight"] == "file x.toml:4"
    assert settings.origins["data.strict"] == "file x.toml:6"


@given(st.text(min_size=1))
def test_a_value_is_parsed_as_toml_else_as_text_or_a_list_of_words(text: str) -> None:
    value = parse_value(text)
    try:
        expected = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        assert value == text or isinstance(value, list)
    else:
        assert value == expected["value"] or len(expected) > 1 or value != value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\ndim = 3\ndim = 4\n", "x.toml:3:8: not valid TOML: the key 'dim' is given twice"),
        ("[model]\ndim = 3\n[model]\n", "x.toml:3:7: not valid TOML: the table [model] is given twice"),
    ],
)
def test_what_is_given_twice_is_named(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(Path("x.toml"))
    assert str(caught.value) == message
