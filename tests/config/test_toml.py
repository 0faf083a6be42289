"""Writing TOML and finding the lines of keys, compared with the parser of the standard library."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config.toml import (
    WIDTH,
    TomlError,
    TooDeep,
    key_lines,
    parse_toml,
    split_key,
    write_key,
    write_toml,
    write_value,
)

keys = st.text(min_size=0, max_size=6) | st.sampled_from(["a", "b", "a-b", "1", "a.b", 'q"q', "x y"])
scalars = (
    st.text()
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
trees = st.dictionaries(keys, values, max_size=5)


@settings(max_examples=200, deadline=None)
@given(trees)
def test_written_toml_is_read_back_unchanged(tree: dict[str, object]) -> None:
    assert _typed(tomllib.loads(write_toml(tree))) == _typed(tree)


@settings(max_examples=50, deadline=None)
@given(trees)
def test_the_text_survives_a_file_in_utf_8(tree: dict[str, object]) -> None:
    assert tomllib.loads(write_toml(tree).encode().decode()) == tree


@settings(max_examples=100, deadline=None)
@given(trees)
def test_a_key_appears_when_its_line_is_parsed(tree: dict[str, object]) -> None:
    text = write_toml(tree)
    rows = text.splitlines(keepends=True)
    lines_of_keys = key_lines(text)
    starts = [*sorted(set(lines_of_keys.values())), len(rows) + 1]
    assert {path[0] for path in lines_of_keys} == set(tree)
    for path, line in lines_of_keys.items():
        following = starts[starts.index(line) + 1]
        assert not _has(tomllib.loads("".join(rows[: line - 1])), path)
        assert _has(tomllib.loads("".join(rows[: following - 1])), path)


@given(st.lists(keys, min_size=1, max_size=4))
def test_a_dotted_path_is_split_into_its_parts(parts: list[str]) -> None:
    assert split_key(write_key(parts)) == tuple(parts)


def test_tables_come_after_keys_and_lists_of_tables_get_double_brackets() -> None:
    tree = {
        "model": {"layers": {"encoder": 3}, "dim": 256, "heads": [4, 4], "dropout": 0.1},
        "seed": 1,
        "data": {"train": [{"source": "a.txt", "at": {"line": 2}}, {"source": "b.txt"}], "test": None},
        "empty": {},
        "corners": [[{"x": 1}], []],
    }
    assert write_toml(tree) == (
        "seed = 1\n"
        "corners = [[{x = 1}], []]\n"
        "\n[model]\ndim = 256\nheads = [4, 4]\ndropout = 0.1\n"
        "\n[model.layers]\nencoder = 3\n"
        "\n[data]\n"
        '\n[[data.train]]\nsource = "a.txt"\n'
        "\n[data.train.at]\nline = 2\n"
        '\n[[data.train]]\nsource = "b.txt"\n'
        "\n[empty]\n"
    )


def test_keys_with_the_value_none_are_omitted() -> None:
    assert tomllib.loads(write_toml({"a": None, "b": {"c": None, "d": [{"e": None}]}})) == {"b": {"d": [{}]}}
    assert write_toml({}) == ""


def test_a_long_list_is_written_one_item_per_line() -> None:
    paths = [f"folder/file-{number}.txt" for number in range(9)]
    text = write_toml({"paths": paths})
    assert text.splitlines()[1] == '    "folder/file-0.txt",'
    assert max(map(len, text.splitlines())) <= WIDTH
    assert tomllib.loads(text) == {"paths": paths}


def test_only_unprintable_characters_are_escaped() -> None:
    assert write_value("più «già»\t\x00\x7f\u2028\U000e0001\\\"'") == (
        '"più «già»\\t\\u0000\\u007f\\u2028\\U000e0001\\\\\\"\'"'
    )


def test_values_that_toml_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match="None has type NoneType, which TOML does not have"):
        write_toml({"a": [1, None]})
    with pytest.raises(TypeError, match="1j has type complex, which TOML does not have"):
        write_toml({"a": 1j})


def test_lines_are_found_behind_comments_and_strings_and_lists_of_many_lines() -> None:
    text = '''# [not.a.table]
a = """
b = 1 # inside
\\""" ["""
c = [ # ]
  "]", 'd = 2', {x = 1},
]
"quoted key".e = 1 # e
f = \'\'\'
[g]\'\'\'\'

[ h . "i]" ] # heading
j = {k = 1}
[[l]]
m = 1
[l.n]
o = 1
[[l]]
m = 2
[[l.p]]
q = """x"""" # "[
r = 1
'''
    assert tomllib.loads(text)["l"][1] == {"m": 2, "p": [{"q": 'x"', "r": 1}]}
    assert key_lines(text) == {
        ("a",): 2,
        ("c",): 5,
        ("quoted key",): 8,
        ("quoted key", "e"): 8,
        ("f",): 9,
        ("h",): 12,
        ("h", "i]"): 12,
        ("h", "i]", "j"): 13,
        ("l",): 14,
        ("l", "0"): 14,
        ("l", "0", "m"): 15,
        ("l", "0", "n"): 16,
        ("l", "0", "n", "o"): 17,
        ("l", "1"): 18,
        ("l", "1", "m"): 19,
        ("l", "1", "p"): 20,
        ("l", "1", "p", "0"): 20,
        ("l", "1", "p", "0", "q"): 21,
        ("l", "1", "p", "0", "r"): 22,
    }


@pytest.mark.parametrize("text", ["", ".", "a..b", "a b", "a=b", "ü", '"a'])
def test_an_invalid_dotted_path_is_not_split(text: str) -> None:
    assert split_key(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "0.0001"),
        (1e22, "1e+22"),
        (float("-inf"), "-inf"),
        (True, "true"),
        (date(2016, 1, 2), "2016-01-02"),
        (time(1, 2, 3), "01:02:03"),
        (datetime(2016, 1, 2, 3, 4, 5, tzinfo=UTC), "2016-01-02T03:04:05+00:00"),
        ((1, 2), "[1, 2]"),
    ],
)
def test_a_value_is_written_on_one_line(value: object, text: str) -> None:
    assert write_value(value) == text


def _typed(value: Any) -> Any:
    """1, 1.0 and true are equal in Python, and are not in TOML."""
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return type(value), value


def _has(value: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and int(part) < len(value):
            value = value[int(part)]
        else:
            return False
    return True


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = " + "[" * 50 + "]" * 50, 2),
        ("a = " + "{a = " * 50 + "1" + "}" * 50, 1),
        ("x = 1\n" + ".".join("a" * 40) + " = 1", 2),
        (" . ".join(['"a b"'] * 40) + " = 1", 1),
        ("\n".join(f"[{'.'.join('a' * 20)}]\n{'.'.join('b' * 20)} = 1" for _ in range(1)), 1),
        ("[" * 100_000, 1),
        ("a." * 100_000 + "a = 1", 1),
    ],
)
def test_deep_nesting_is_refused_at_once(text: str, line: int) -> None:
    with pytest.raises(TooDeep, match="nested deeper than 32 levels") as caught:
        parse_toml(text)
    assert caught.value.line == line


def test_brackets_and_dots_in_strings_and_comments_do_not_count() -> None:
    deep, dots = "[" * 100, ".".join("a" * 100)
    text = f'a = "{deep}" # {deep}\nb = """\n{dots} = 1\n{deep}"""\nc = \'{dots}\'\nd = [[1], [2]]\n'
    assert parse_toml(text) == {"a": deep, "b": f"{dots} = 1\n{deep}", "c": dots, "d": [[1], [2]]}


def test_the_error_has_the_position_of_a_number_of_thousands_of_digits() -> None:
    with pytest.raises(TomlError, match="a number has thousands of digits") as caught:
        parse_toml("a = 1\nb = " + "1" * 5000)
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_a_key_with_an_invalid_escape_is_refused() -> None:
    assert split_key('"\\q"') is None
    assert split_key('a."b c"') == ("a", "b c")
