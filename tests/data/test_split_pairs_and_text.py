"""`data.split` of sentence pairs and of plain text: every line in one part, near-duplicates together, as for other forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import config_problems
from tiny_tasks import write_tiny_recipe
from workshop import heed

from heedful.data.check import check_data
from heedful.data.corpus_text import TextConfig, check_passage, passages, read_passage
from heedful.data.pairs import pairs
from heedful.data.splits import SPLITS, DataConfig, splits_of
from heedful.errors import DataError
from heedful.runs.build import data_of
from heedful.runs.config import read_run

FRACTIONS = [0.6, 0.2, 0.2]
PAIRS = [(f"source {n} has the words a{n} b{n} c{n} d{n}", f"target {n} {n * n}") for n in range(80)]
NEAR = [(f"Source {n}, has the words a{n} b{n} c{n} d{n}!", f"another {n}") for n in range(0, 80, 2)]
PARAGRAPHS = [f"paragraph {n} begins with x{n} y{n}\nand ends with z{n} w{n} v{n}" for n in range(60)]


def write_corpus(form: str, folder: Path) -> dict[str, Any]:
    """Write all pairs in a form; returns data.train."""
    rows = PAIRS + NEAR
    if form == "two files":
        for side, name in enumerate(("a.en", "a.it")):
            (folder / name).write_text("".join(f"{row[side]}\n" for row in rows))
        return {"source": str(folder / "a.en"), "target": str(folder / "a.it")}
    if form == "parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(
            pyarrow.table({"en": [row[0] for row in rows], "it": [row[1] for row in rows]}), folder / "a.parquet"
        )
        return {"parquet": str(folder / "a.parquet"), "columns": ["en", "it"]}
    text = "".join(json.dumps({"en": a, "it": b}) + "\n" for a, b in rows)
    text = text if form == "jsonl" else "".join(f"{a}\t{b}\n" for a, b in rows)
    (folder / f"a.{form}").write_text(text)
    return {form: str(folder / f"a.{form}")} | ({"fields": ["en", "it"]} if form == "jsonl" else {})


@pytest.mark.parametrize("form", ["tsv", "jsonl", "two files", "parquet"])
def test_every_pair_is_in_one_part_and_near_duplicate_sources_in_the_same(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    data = DataConfig.model_validate({"train": write_corpus(form, tmp_path), "split": FRACTIONS})
    parts = {split: [pair for corpus in getattr(splits_of(data), split) for pair in pairs(corpus)] for split in SPLITS}
    assert sorted(pair.line for part in parts.values() for pair in part) == list(range(1, 121))
    assert all(len(part) > 5 and [pair.line for pair in part] == sorted(pair.line for pair in part) for part in parts.values())
    part_of = {pair.source: split for split, part in parts.items() for pair in part}
    assert all(part_of[PAIRS[2 * at][0]] == part_of[source] for at, (source, _) in enumerate(NEAR))
    report = check_data(data)
    assert [corpus.split for corpus in report.corpora] == list(SPLITS) and report.clean  # no source is in two parts
    assert sum(corpus.kept for corpus in report.corpora) == sum(corpus.total for corpus in report.corpora) == 120


def test_unusable_pairs_are_reported_once_with_the_training_part(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS) + "alone\t\n" * 3)
    report = check_data(DataConfig.model_validate({"train": {"tsv": str(table)}, "split": FRACTIONS}))
    assert [sum(finding.count for finding in corpus.findings) for corpus in report.corpora] == [3, 0, 0]
    with pytest.raises(
        DataError, match=r"a.tsv has no pair for test with data.split = \[0.5, 0.4999, 0.0001\]; expected at least"
    ):
        check_data(DataConfig.model_validate({"train": {"tsv": str(table)}, "split": [0.5, 0.4999, 0.0001]}))


def write_book(form: str, folder: Path) -> dict[str, Any]:
    """Write a text in a form; returns options of [data]."""
    file = folder / "book.txt"
    if form == "paragraphs":
        file.write_text("\n" + "\n\n\n".join(PARAGRAPHS) + "\n")
    elif form == "lines":
        file.write_text("\n".join(PARAGRAPHS) + "\n")
    else:
        file.write_text("".join(f"{n}\t{text.split(chr(10))[0]}\n" for n, text in enumerate(PARAGRAPHS)))
        return {"train": {"file": str(file), "column": 2}}
    return {"file": str(file)}


@pytest.mark.parametrize("form", ["paragraphs", "lines", "rows"])
def test_every_line_of_a_text_is_in_one_part_and_units_stay_whole(form: str, tmp_path: Path) -> None:
    data = TextConfig.model_validate({"form": "text", "split": FRACTIONS} | write_book(form, tmp_path))
    parts = {split: [list(read_passage(one)) for one in passages(data, split)] for split in SPLITS}
    lines = {split: line for split, (line,) in parts.items()}
    whole = (tmp_path / "book.txt").read_text().removesuffix("\n").split("\n")
    whole = [line.split("\t")[1] for line in whole] if form == "rows" else whole
    assert sorted(line for part in lines.values() for line in part) == sorted(whole)
    assert all(len(part) > 4 for part in lines.values())
    part_of = {line: split for split, part in lines.items() for line in part}
    same = [part_of[first] == part_of[second] for first, second in (text.split("\n") for text in PARAGRAPHS if form != "rows")]
    assert all(same) if form == "paragraphs" else form == "rows" or not all(same)
    checks = [check_passage(split, one) for split in SPLITS for one in passages(data, split)]
    assert all(check.remark.endswith(f", split by {form}") for check in checks)
    assert sum(check.total for check in checks) == len(whole)


def test_near_duplicate_paragraphs_stay_together(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_text("\n\n".join([*PARAGRAPHS, *(text.upper() for text in PARAGRAPHS)]) + "\n")
    data = TextConfig.model_validate({"form": "text", "file": str(file), "split": FRACTIONS})
    part_of = {line: split for split in SPLITS for one in passages(data, split) for line in read_passage(one)}
    assert all(part_of[line] == part_of[line.upper()] for text in PARAGRAPHS for line in text.split("\n"))


TSV = {"tsv": "a.tsv"}
WRONG = [
    (DataConfig, {"train": TSV, "split": [0.5, 0.2, 0.2]}, "expected three fractions with the sum 1"),
    (DataConfig, {"train": TSV, "split": [1.0, 0.0, 0.0]}, "valid missing"),
    (DataConfig, {"train": TSV, "valid": TSV, "split": FRACTIONS}, "valid would have no effect: data.split makes a valid part"),
    (DataConfig, {"train": [TSV, TSV], "split": FRACTIONS}, "given with 2 corpora in data.train, expected one"),
    (DataConfig, {"builtin": True, "split": FRACTIONS}, "given with data.builtin, expected data.train"),
    (DataConfig, {"train": TSV | {"alignment": "a.links"}, "split": FRACTIONS}, "cannot be combined with train.alignment"),
    (TextConfig, {"file": "a.txt", "split": FRACTIONS, "held_out": 0.2}, "has no effect because data.split is given"),
    (TextConfig, {"file": "a.txt", "split": [0.5, 0.0, 0.5]}, "leaves nothing to validate on"),
    (TextConfig, {"folder": "a", "split": FRACTIONS}, "given with data.folder, expected data.file or data.train"),
    (
        TextConfig,
        {"train": [{"file": "a"}, {"file": "b"}], "split": FRACTIONS},
        "given with 2 files in data.train",
    ),
    (TextConfig, {"train": {"file": "a"}, "valid": {"file": "b"}, "split": FRACTIONS}, "data.split makes a valid part"),
]


@pytest.mark.parametrize(("config", "options", "sentence"), WRONG, ids=[one[2] for one in WRONG])
def test_a_split_that_has_no_meaning_is_refused_in_one_sentence(config: Any, options: dict[str, Any], sentence: str) -> None:
    form = {"form": "text"} if config is TextConfig else {}
    problems = config_problems(config, **form, **options)
    assert any(sentence in problem for problem in problems.values()), problems


@pytest.mark.parametrize("task", ["translation", "language", "masked"])
def test_a_run_on_one_file_is_trained_evaluated_and_described(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_tiny_recipe(task, tmp_path)
    split = f'data={{train={{tsv="{tmp_path}/one.tsv"}}, split=[0.6, 0.2, 0.2]}}'
    if task == "translation":
        (tmp_path / "one.tsv").write_text("".join(f"w{n} w{n + 1}\tw{n + 1} w{n}\n" for n in range(60)))
    else:
        (tmp_path / "one.txt").write_text("\n\n".join(PARAGRAPHS) + "\n")
        split = f'data={{form="text", file="{tmp_path}/one.txt", split=[0.6, 0.2, 0.2], block=16, batch=4}}'
    assert heed("train", recipe, split, "training.steps=2", "--run", tmp_path / "run") == 0
    for part in SPLITS:
        assert heed("evaluate", tmp_path / "run", "--split", part) == 0
    stored = read_run(tmp_path / "run" / "config.toml").config
    assert stored.data.split == (0.6, 0.2, 0.2) and len(data_of(stored).files()) == 1
    assert "near-duplicates kept together: 60% train, 20% valid, 20% test" in (tmp_path / "run" / "README.md").read_text()
    capsys.readouterr()
    assert heed("data", "check", tmp_path / "run" / "config.toml") == 0
    printed = capsys.readouterr().out
    assert all(f"{part:<5}  " in printed for part in SPLITS) and printed.count("one.t") == 3
