"""Broken files of labeled texts: one sentence each, with file and line, and the exit code of data (3) or of the recipe (2)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import pytest
from workshop import GPT, heed

RECIPE = """\
[data]
form = "labeled"
{data}

[task]
name = "classification"
labels = ["yes", "no"]

"""
NAMED = 'label = "label"\ntexts = ["text"]\n'
ONE = "split = [0.5, 0.5, 0.0]\n"


class Broken(NamedTuple):
    name: str  # of the file
    content: bytes
    message: str
    hint: str = ""
    data: str = NAMED + ONE  # options of [data] besides train
    code: int = 3


NOT_JSON = "write one JSON object per line, without blank lines"
QUOTES = 'close the quote; write a quote inside a quoted cell twice: ""'
CHECK_COLUMNS = "check data.label and data.texts, and that line 1 is the header"
CASES = {
    "CSV without the column": Broken(
        "a.csv",
        b"label,txt\nyes,fine\n",
        "a.csv has no column 'text'; its columns are: label, txt",
        "did you mean 'txt'?",
    ),
    "CSV with semicolons": Broken(
        "a.csv",
        b"label;text\nyes;fine\n",
        "a.csv has no column 'label'; its columns are: label;text",
        "the only column name contains ';'; separate the columns as the format asks",
    ),
    "CSV with tabs": Broken(
        "a.csv",
        b"label\ttext\nyes\tfine\n",
        "a.csv has no column 'label'; its columns are: label\ttext",
        "the only column name contains '\\t'; set format = \"tsv\" next to file",
    ),
    "CSV without a header": Broken(
        "a.csv", b"yes,fine\nno,bad\n", "a.csv has no column 'label'; its columns are: yes, fine", CHECK_COLUMNS
    ),
    "CSV with a column twice": Broken(
        "a.csv", b"label,text,text\nyes,a,b\n", "a.csv line 1 has the column 'text' twice", "rename one of them"
    ),
    "CSV with too many cells": Broken(
        "a.csv",
        b'label,text\nyes,"one,\ntwo"\nno,bad, really\n',
        "a.csv line 4 has 3 cells; expected 2, as many as the header",
        'put cells with a comma in quotes: "…, …"',
    ),
    "CSV with too few cells": Broken(
        "a.csv",
        b"label,text\nyes,fine\nno\n",
        "a.csv line 3 has 1 cell; expected 2, as many as the header",
        'put cells with a comma in quotes: "…, …"',
    ),
    "CSV with an unclosed quote at the end": Broken(
        "a.csv",
        b'label,text\nyes,fine\nno,"bad\nyes,good\n',
        "a.csv line 3 begins a row whose quotes do not match: one is not closed",
        QUOTES,
    ),
    "CSV with an unclosed quote before another": Broken(
        "a.csv",
        b'label,text\nno,"bad\nyes,"good"\n',
        "a.csv line 2 begins a row whose quotes do not match: one is not closed",
        QUOTES,
    ),
    "CSV with text after a quote": Broken(
        "a.csv",
        b'label,text\nno,"bad" film\n',
        "a.csv line 2 has text after a closing quote; expected a comma or the end of the row",
        'write a quote inside a quoted cell twice: ""',
    ),
    "CSV of a header only": Broken(
        "a.csv", b"label,text\n", "a.csv has a header, but no rows; expected at least one row after line 1"
    ),
    "an empty CSV": Broken("a.csv", b"", "a.csv is empty; expected at least one line"),
    "CSV whose header is not UTF-8": Broken(
        "a.csv", b"label,t\xe9xt\nyes,a\n", "a.csv line 1: byte 8 is not UTF-8; expected a header, the names of the columns"
    ),
    "CSV of UTF-16": Broken(
        "a.csv",
        "label,text\nyes,fine\n".encode("utf-16"),
        "a.csv is UTF-16; expected UTF-8",
        "convert it: iconv -f UTF-16 -t UTF-8 a.csv > a.csv.utf8",
    ),
    "CSV with an unknown label": Broken(
        "a.csv",
        b'label,text\nyes,"a\nb"\nyse,fine\n',
        "a.csv line 4 has the label 'yse'; expected one of: yes, no",
        "did you mean 'yes'?",
    ),
    "CSV with unusable rows": Broken(
        "a.csv",
        b"label,text\nyes,fine\n,bad\n\nno,b\xe4d\n",
        "a.csv: 3 of 4 lines are unusable; expected at most the fraction data.max_unusable = 0.05; "
        "2 lines with an empty column, the first at a.csv line 3: column 'label' is empty; expected a label; "
        "1 line that is not UTF-8",
        "check these lines; or set data.max_unusable = 0.75 to skip them",
        NAMED + 'valid = { file = "a.csv" }\n',
    ),
    "JSONL that is no JSON": Broken(
        "a.jsonl",
        b'{"label": "yes", "text": "a"}\n{"label": "yes", text: "a"}\n',
        "a.jsonl line 2 is not JSON: Expecting property name enclosed in double quotes",
        NOT_JSON,
    ),
    "JSONL with a blank line": Broken(
        "a.jsonl",
        b'{"label": "yes", "text": "a"}\n\n{"label": "yes", "text": "a"}\n',
        "a.jsonl line 2 is not JSON: Expecting value",
        NOT_JSON,
    ),
    "JSONL with a list": Broken(
        "a.jsonl",
        b'["yes", "a"]\n',
        'a.jsonl line 1 is ["yes", "a"]; expected a JSON object',
        'write for example {"text": "…"}',
    ),
    "JSONL without the field": Broken(
        "a.jsonl",
        b'{"label": "yes", "text": "a"}\n{"label": "no", "Text": "a"}\n',
        "a.jsonl line 2 has no field 'text'; its fields are: 'label', 'Text'",
        "did you mean 'Text'?",
    ),
    "JSONL with a number as text": Broken(
        "a.jsonl", b'{"label": "yes", "text": 3}\n', "a.jsonl line 1: field 'text' is 3; expected a string"
    ),
    "JSONL with a fraction as label": Broken(
        "a.jsonl",
        b'{"label": 0.5, "text": "a"}\n',
        "a.jsonl line 1: field 'label' is 0.5; expected a string, an integer, true or false, or a list of these",
    ),
    "JSONL with a null in a list of labels": Broken(
        "a.jsonl",
        b'{"label": ["yes", null], "text": "a"}\n',
        "a.jsonl line 1: field 'label' is [\"yes\", null]; expected a string, an integer, true or false, or a list of these",
    ),
    "JSONL with two labels": Broken(
        "a.jsonl",
        b'{"label": ["yes", "no"], "text": "a"}\n',
        "a.jsonl line 1 has 2 labels: yes, no; expected one",
    ),
    "TSV with a header and another number of cells": Broken(
        "a.tsv",
        b"label\ttext\nyes\ta\tb\n",
        "a.tsv line 2 has 3 cells; expected 2, as many as the header",
        "write a tab between two cells and none inside a cell",
        "header = true\n" + NAMED + ONE,
    ),
    "TSV with an unexpected header": Broken(
        "a.tsv",
        b"label\ttext\nyes\ta\nno\tb\n",
        "a.tsv line 1 looks like a header: its label is 'label', which no other line has",
        "set data.header = true, and the names of the columns in data.label and data.texts; or set data.header = false to "
        "train on that line",
        ONE,
    ),
    "a truncated gzip file": Broken(
        "a.csv.gz",
        gzip.compress(b"label,text\n" + b"yes,fine\n" * 2000)[:-4],
        "a.csv.gz is truncated: its gzip stream ends after line 2001",
        "copy or download it again",
    ),
    "a split without examples for a part": Broken(
        "a.csv",
        b"label,text\nyes,fine\n",
        "a.csv has no example for train with data.split = [0.01, 0.99, 0.0]; expected at least one",
        "use a larger fraction, or more examples",
        NAMED + "split = [0.01, 0.99, 0.0]\n",
    ),
    "an unknown suffix": Broken(
        "a.data",
        b"",
        "recipe.toml:3: data.train.format: missing; expected tsv, csv or jsonl, because 'a.data' ends in none of them",
        code=2,
    ),
    "a split beside a validation file": Broken(
        "a.csv",
        b"",
        "recipe.toml:6: data.valid: given a table, but has no effect because data.split makes a valid part of data.train; "
        "remove it",
        data=NAMED + 'valid = { file = "a.csv" }\n' + ONE,
        code=2,
    ),
    "numbers as columns of CSV": Broken(
        "a.csv",
        b"",
        "recipe.toml:4: data.texts: given [2], expected the name of a column for each text",
        data='texts = [2]\nlabel = "label"\n' + ONE,
        code=2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_file_has_its_message(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = CASES[case]
    monkeypatch.chdir(tmp_path)
    Path(broken.name).write_bytes(broken.content)
    table = f'train = {{ file = "{broken.name}" }}\n{broken.data}'
    Path("recipe.toml").write_text(RECIPE.format(data=table) + GPT)
    assert heed("data", "check", "recipe.toml") == broken.code
    hint = f"\n\nhint: {broken.hint}" if broken.hint else ""
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "") == f"error: {broken.message}{hint}\n"


PAIRS, TEXT = '[data]\ntrain = {{ tsv = "{name}" }}\n', '[data]\nform = "text"\nfile = "{name}"\n'
LANGUAGE = '[task]\nname = "language"\n\n'
SPLITS = {  # of sentence pairs and plain text: the recipe without its model, and the broken file
    "a split of pairs without a pair for a part": (
        PAIRS + "split = [0.01, 0.99, 0.0]\n",
        Broken(
            "a.tsv",
            b"one\tuno\n",
            "a.tsv has no pair for train with data.split = [0.01, 0.99, 0.0]; expected at least one",
            "use a larger fraction, or more pairs",
        ),
    ),
    "a split of pairs with a header": (
        PAIRS + "split = [0.5, 0.5, 0.0]\n",
        Broken(
            "a.tsv",
            b"english\titalian\none\tuno\n",
            "a.tsv line 1 looks like a header: english, italian; expected a sentence pair",
            "set header = true, next to the file in [data], to skip that line (heed data check: --header), or header = false "
            "to train on it",
        ),
    ),
    "a split of text without a line for a part": (
        TEXT + "split = [0.01, 0.99, 0.0]\n\n" + LANGUAGE,
        Broken(
            "a.txt",
            b"one line\n",
            "a.txt has no line for train with data.split = [0.01, 0.99, 0.0]; expected at least one",
            "use a larger fraction, or more text",
        ),
    ),
    "a split of text beside held_out": (
        TEXT + "split = [0.5, 0.5, 0.0]\nheld_out = 0.2\n\n" + LANGUAGE,
        Broken(
            "a.txt",
            b"",
            "recipe.toml:5: data.held_out: given 0.2, but has no effect because data.split is given; remove it",
            code=2,
        ),
    ),
}


@pytest.mark.parametrize("case", SPLITS)
def test_a_broken_split_has_its_message(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, broken = SPLITS[case]
    monkeypatch.chdir(tmp_path)
    Path(broken.name).write_bytes(broken.content)
    Path("recipe.toml").write_text(recipe.format(name=broken.name) + GPT)
    assert heed("data", "check", "recipe.toml") == broken.code
    hint = f"\n\nhint: {broken.hint}" if broken.hint else ""
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "") == f"error: {broken.message}{hint}\n"
