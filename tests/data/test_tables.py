"""Parquet files and Hugging Face datasets, written by pyarrow and by `datasets`, give the same text as plain files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from workshop import CLASSIFICATION, GPT, LANGUAGE, heed, write_pairs, write_recipe

from heedful.data.check import check_corpora
from heedful.data.corpus_text import Passage, TextConfig, check_passage, passages, read_passage
from heedful.data.encode import content_hash
from heedful.data.labeled import Example, LabeledConfig, LabeledFile, check_examples, find_split_file, read_examples
from heedful.data.pairs import check_pairs, pairs
from heedful.data.sources import CorpusConfig, RawPair, files_of, raw_pairs
from heedful.data.splits import DataConfig, Splits, splits_of
from heedful.data.tables import dataset_splits, read_rows
from heedful.errors import DataError

datasets.disable_progress_bars()

PAIRS = [("A dog.", "Ein Hund."), ("Two\u2028cats.", "Zwei\x85Katzen."), ("é", "ü"), ("", "x"), ("a\nb", "c\td")]
RAW = [RawPair(number, source.encode(), target.encode()) for number, (source, target) in enumerate(PAIRS, start=1)]
SOURCES, TARGETS = map(list, zip(*PAIRS, strict=True))
FLAT = {"id": list(range(len(PAIRS))), "en": SOURCES, "de": TARGETS}
NESTED = {"translation": [{"en": source, "de": target} for source, target in PAIRS]}


def write_table(path: Path, columns: dict[str, Any], types: dict[str, Any] | None = None) -> Path:
    kinds = types or {}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(cells, kinds.get(name)) for name, cells in columns.items()}), path)
    return path


def write_shards(folder: Path, split: str = "train") -> Path:
    for number, rows in enumerate((slice(0, 2), slice(2, 5))):
        write_table(folder / f"{split}-{number:05}-of-00002.parquet", {name: cells[rows] for name, cells in FLAT.items()})
    return folder


def save(dataset: Any, folder: Path, **options: Any) -> Path:
    dataset.save_to_disk(str(folder), **options)
    return folder


def three_splits(columns: dict[str, Any], features: Any = None) -> datasets.DatasetDict:
    whole = datasets.Dataset.from_dict(columns, features=features)
    return datasets.DatasetDict(train=whole, validation=whole.select([1]), test=whole.select([2]))


def translations() -> datasets.Dataset:
    return datasets.Dataset.from_dict(NESTED, features=datasets.Features({"translation": datasets.Translation(["en", "de"])}))


def as_dictionary(text: list[str]) -> Any:
    return pa.array(text).dictionary_encode()


# The same pairs, in every way that a table can be stored.
STORED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "file": lambda at: {"parquet": write_table(at / "a.parquet", FLAT)},
    "large strings": lambda at: {"parquet": write_table(at / "a.parquet", FLAT, {"en": pa.large_string()})},
    "string views": lambda at: {"parquet": write_table(at / "a.parquet", FLAT, {"de": pa.string_view()})},
    "dictionary": lambda at: {"parquet": write_table(at / "a.parquet", FLAT | {"en": as_dictionary(SOURCES)})},
    "folder of files": lambda at: {"parquet": write_shards(at / "all")},
    "pattern": lambda at: {"parquet": write_shards(at / "all") / "train-*.parquet"},
    "nested": lambda at: {"parquet": write_table(at / "a.parquet", NESTED)},
    "to_parquet": lambda at: translations().to_parquet(at / "a.parquet") and {"parquet": at / "a.parquet"},
    "saved": lambda at: {"dataset": save(datasets.Dataset.from_dict(FLAT), at / "saved")},
    "saved, nested": lambda at: {"dataset": save(translations(), at / "saved")},
    "saved in shards": lambda at: {"dataset": save(datasets.Dataset.from_dict(FLAT), at / "saved", num_shards=3)},
    "saved with splits": lambda at: {"dataset": save(three_splits(FLAT), at / "saved"), "split": "train"},
    "files named after splits": lambda at: {"dataset": write_shards(write_shards(at / "hub", "test")), "split": "train"},
    "files in data": lambda at: {"dataset": write_shards(at / "hub" / "data").parent, "split": "train"},
    "folders of splits": lambda at: {"dataset": write_shards(at / "hub" / "train", "part").parent, "split": "train"},
}  # fmt: skip


def stored(way: str, folder: Path) -> dict[str, Any]:
    return {name: str(value) for name, value in STORED[way](folder).items()}


@pytest.mark.parametrize("way", STORED)
def test_every_way_of_storing_a_table_gives_the_same_pairs(tmp_path: Path, way: str) -> None:
    corpus = CorpusConfig.model_validate({"columns": ["en", "de"]} | stored(way, tmp_path))
    assert list(raw_pairs(corpus)) == RAW
    swapped = corpus.model_copy(update={"columns": ("de", "en")})
    assert list(raw_pairs(swapped)) == [RawPair(line, target, source) for line, source, target in RAW]


def test_a_nested_column_has_a_dotted_name(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", {"pair": NESTED["translation"], "pair.en": TARGETS})
    corpus = CorpusConfig(parquet=str(path), columns=("pair.de", "pair.en"))
    assert [pair.target for pair in raw_pairs(corpus)] == [target.encode() for target in TARGETS], "a column precedes a field"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.none() | st.text(), st.text()), min_size=1))
def test_any_text_survives_and_a_null_is_empty(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, str]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    encodable = [(a, b) for a, b in rows if not any("\ud800" <= c <= "\udfff" for c in f"{a}{b}")] or [("", "")]
    write_table(
        folder / "a.parquet", dict(zip(("a", "b"), map(list, zip(*encodable, strict=True)), strict=True)), {"a": pa.string()}
    )
    read = [(a.decode(), b.decode()) for _, a, b in raw_pairs(CorpusConfig(parquet=f"{folder}/a.parquet", columns=("a", "b")))]
    assert read == [(a or "", b) for a, b in encodable]


def test_more_rows_than_a_batch_are_all_read_in_order(tmp_path: Path) -> None:
    texts = [f"w{number}" for number in range(10_001)]
    write_table(tmp_path / "a.parquet", {"a": texts})
    save(datasets.Dataset.from_dict({"a": texts}), tmp_path / "saved")
    for path in (tmp_path / "a.parquet", tmp_path / "saved"):
        assert [cell.decode() for (cell,) in read_rows(path, ["a"]) if cell is not None] == texts


def test_rows_with_a_null_are_unusable_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    nested = [{"en": "a", "de": "b"}, {"en": None, "de": "b"}, None, {"en": "c", "de": None}, {"en": "d", "de": "e"}]
    path = write_table(tmp_path / "a.parquet", {"translation": nested})
    corpus = CorpusConfig(parquet=str(path), columns=("en", "de"))
    assert [(pair.line, pair.source, pair.target) for pair in pairs(corpus)] == [(1, "a", "b"), (5, "d", "e")]
    (check,) = check_corpora(Splits((corpus,))).corpora
    (finding,) = check.findings
    assert (check.total, check.kept, finding.kind, finding.count) == (5, 2, "empty", 3)
    assert finding.examples[0].place == f"{path} row 2"
    with pytest.raises(DataError, match="row 2: the text is empty"):
        list(check_pairs(corpus, strict=True))


def test_text_that_is_not_utf8_is_counted(tmp_path: Path) -> None:
    broken = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
    write_table(tmp_path / "a.parquet", {"a": broken, "b": ["x", "y"]})
    corpus = CorpusConfig(parquet=f"{tmp_path}/a.parquet", columns=("a", "b"))
    report = check_corpora(Splits((corpus,)))
    assert [(finding.kind, finding.count) for finding in report.corpora[0].findings] == [("utf8", 1)]
    refusal = report.training_error(0.0)
    assert refusal is not None and "iconv" not in str(refusal.hint)
    check = check_passage("train", Passage(tmp_path / "a.parquet", "a"))
    assert [(one.kind, one.count, one.examples[0].place) for one in check.findings] == [
        ("utf8", 1, f"{tmp_path}/a.parquet row 2")
    ]
    assert check.conversions == () and check.kept == 1


ERRORS: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "missing column": (
        lambda at: {"parquet": write_table(at / "a.parquet", FLAT), "columns": ["en", "fr"]},
        r"a\.parquet has no column 'fr'; its columns are: id, en, de",
    ),
    "missing field": (
        lambda at: {"dataset": save(translations(), at / "saved"), "columns": ["en", "fr"]},
        r"has no column 'fr'; its columns are: translation\.de, translation\.en",
    ),
    "not text": (
        lambda at: {"parquet": write_table(at / "a.parquet", FLAT), "columns": ["id", "de"]},
        r"a\.parquet: column 'id' has the type int64; expected text",
    ),
    "missing file": (lambda at: {"parquet": at / "none.parquet", "columns": ["a", "b"]}, r"none\.parquet does not exist"),
    "no match": (lambda at: {"parquet": at / "x-*.parquet", "columns": ["a", "b"]}, r"no file matches .*x-\*\.parquet"),
    "no dataset": (lambda at: {"dataset": at, "columns": ["a", "b"]}, "is no dataset: it has no dataset_dict.json"),
    "missing split": (
        lambda at: {"dataset": save(three_splits(FLAT), at / "saved"), "split": "dev2", "columns": ["en", "de"]},
        "has no split 'dev2'; its splits are: train, validation, test",
    ),
    "several splits": (
        lambda at: {"dataset": write_shards(write_shards(at, "test_a"), "test_b"), "split": "test", "columns": ["en", "de"]},
        "has several splits for 'test': test_a, test_b",
    ),
    "no splits": (
        lambda at: {"dataset": save(translations(), at / "saved"), "split": "train", "columns": ["en", "de"]},
        "was saved without splits, but split = 'train' is given",
    ),
    "no rows": (
        lambda at: {"parquet": write_table(at / "a.parquet", {"a": [], "b": []}, dict.fromkeys("ab", pa.string())),
                    "columns": ["a", "b"]},
        r"a\.parquet is empty; expected at least one row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_read_is_an_error_that_says_what_is_there(tmp_path: Path, case: str) -> None:
    make, message = ERRORS[case]
    given = {name: str(value) if isinstance(value, Path) else value for name, value in make(tmp_path).items()}
    with pytest.raises(DataError, match=message):
        list(raw_pairs(CorpusConfig.model_validate(given)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parquet": "a.parquet"}, "parquet is given without columns"),
        ({"dataset": "a", "columns": [1, 2]}, r"columns is \[1, 2\]; expected names"),
        ({"tsv": "a.tsv", "columns": ["en", "de"]}, r"columns is \['en', 'de'\]; expected numbers, counted from 1"),
        ({"parquet": "a.parquet", "columns": ["en", "de"], "split": "train"}, "split would have no effect with parquet"),
        ({"parquet": "a.parquet", "columns": ["en", "en"]}, "expected different values for source and target"),
    ],
)
def test_a_wrong_config_of_pairs_is_a_clear_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CorpusConfig.model_validate(given)


def test_the_default_split_is_that_of_the_data(tmp_path: Path) -> None:
    save(three_splits(FLAT), tmp_path / "saved")
    table = {"dataset": str(tmp_path / "saved"), "columns": ["en", "de"]}
    splits = splits_of(DataConfig.model_validate({"train": table, "valid": table, "test": table | {"split": "train"}}))
    files = [file.name for corpora in splits for corpus in corpora for file in files_of(corpus)]
    assert files == ["train", "validation", "train"]
    text = TextConfig.model_validate({"form": "text"} | both({"dataset": table["dataset"], "column": "en"}))
    assert [passage.path.name for split in ("train", "valid") for passage in passages(text, split)] == ["train", "validation"]
    labeled = LabeledConfig.model_validate(labeled_options() | both({"dataset": table["dataset"]}))
    assert [found(labeled, split).name for split in ("train", "valid")] == ["train", "validation"]


def both(table: dict[str, Any]) -> dict[str, Any]:
    return {"train": table, "valid": table}


def labeled_options() -> dict[str, Any]:
    return {"form": "labeled", "label": "label", "texts": ["text"]}


def found(data: LabeledConfig, split: str) -> Path:
    file = find_split_file(data, split)
    assert file is not None and isinstance(file.path, Path)
    return file.path


def test_a_dataset_without_splits_is_used_for_any_split(tmp_path: Path) -> None:
    save(translations(), tmp_path / "saved")
    assert dataset_splits(tmp_path / "saved") == {}
    table = {"dataset": str(tmp_path / "saved"), "columns": ["en", "de"]}
    splits = splits_of(DataConfig.model_validate({"train": table, "valid": table}))
    assert [files_of(corpora[0]) for corpora in splits[:2]] == [(tmp_path / "saved",)] * 2


def test_lines_of_text_are_the_lines_of_the_cells_without_nulls(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", {"text": ["one", None, "", "two\nthree", "four"]})
    assert list(read_passage(Passage(tmp_path / "a.parquet", "text"))) == ["one", "", "two", "three", "four"]
    (finding,) = check_passage("train", Passage(tmp_path / "a.parquet", "text")).findings
    assert (finding.kind, finding.count, finding.examples[0].place) == ("blank", 1, f"{tmp_path}/a.parquet row 2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"file": "a", "parquet": "b"}, "given file and parquet; expected one of file, parquet or dataset"),
        ({"parquet": "b"}, "column: given nothing, expected the name of a column, with parquet"),
        ({"dataset": "b", "column": 2}, "column: given 2, expected the name of a column, with dataset"),
        ({"file": "b", "column": "text"}, "column: given 'text', expected a number, counted from 1, with file"),
        ({"file": "b", "split": "train"}, "split: would have no effect without dataset"),
        ({"parquet": "b", "column": "text", "header": True}, "header: would have no effect without column"),
    ],
)
def test_a_wrong_config_of_text_is_a_clear_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TextConfig.model_validate({"form": "text", "train": given, "valid": {"file": "v"}})


def test_labels_are_the_names_of_classes_or_the_values(tmp_path: Path) -> None:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    reviews = datasets.Dataset.from_dict({"text": ["bad", "good", "fine"], "label": [0, 1, 1]}, features=features)
    save(reviews, tmp_path / "saved")
    reviews.to_parquet(tmp_path / "a.parquet")
    for path in (tmp_path / "saved", tmp_path / "a.parquet"):
        assert [example.labels for example in examples_of(path)] == [("neg",), ("pos",), ("pos",)]
    for values, expected in (([3, 4], ["3", "4"]), ([True, False], ["true", "false"]), (["no", "yes"], ["no", "yes"])):
        write_table(tmp_path / "b.parquet", {"label": values, "text": ["x", "y"]})
        assert [example.labels[0] for example in examples_of(tmp_path / "b.parquet")] == expected
    write_table(tmp_path / "b.parquet", {"label": [0.5, 1.5], "text": ["x", "y"]})
    with pytest.raises(DataError, match="column 'label' has the type double; expected text, integers or booleans"):
        examples_of(tmp_path / "b.parquet")


def examples_of(path: Path, labels: tuple[str, ...] | None = None) -> list[Example]:
    return read_examples(labeled_data(path), LabeledFile(path, "table"), labels)


def labeled_data(path: Path) -> LabeledConfig:
    return LabeledConfig.model_validate(labeled_options() | both({"parquet": str(path)}))


@pytest.mark.parametrize("column", ["label", "text"])
def test_an_example_without_a_label_or_text_is_unusable(tmp_path: Path, column: str) -> None:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    columns = {"text": ["bad", "?", "good"], "label": [0, 0, 1]}
    columns |= {"text": ["bad", None, "good"]} if column == "text" else {"label": [0, -1, 1]}
    save(datasets.Dataset.from_dict(columns, features=features), tmp_path / "saved")
    assert examples_of(tmp_path / "saved") == [Example(("neg",), ("bad",)), Example(("pos",), ("good",))]
    saved = LabeledFile(tmp_path / "saved", "table")
    check = check_examples(labeled_data(tmp_path / "saved"), "train", saved, ["neg", "pos"])
    (finding,) = check.findings
    assert (check.total, check.kept, finding.kind, finding.examples[0].place) == (3, 2, "blank", f"{tmp_path}/saved row 2")
    assert finding.examples[0].text == f"column '{column}' is empty; expected a {column}"


def test_an_unknown_label_is_an_error_with_its_row(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", {"label": ["yes", "yse"], "text": ["x", "y"]})
    with pytest.raises(DataError, match=r"a\.parquet row 2 has the label 'yse'; expected one of: yes, no"):
        examples_of(tmp_path / "a.parquet", ("yes", "no"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"label": 1}, "label: given 1, expected the name of a column"),
        ({"texts": [1]}, r"texts: given \[1\], expected the name of a column for each text"),
        ({"texts": ["label"]}, "which includes the column of the label"),
        ({"header": True}, "header: given true, but has no effect because only tab-separated files may lack one"),
        ({"valid": {"file": "valid.tsv"}}, "valid: given a tab-separated file, but train has columns with names"),
        ({"train": {"parquet": "a", "dataset": "b"}}, "given parquet and dataset; expected one of file, parquet or dataset"),
        ({"train": {"file": "a.txt"}}, "format: missing; expected tsv, csv or jsonl, because 'a.txt' ends in none of them"),
        ({"train": {"parquet": "a", "format": "csv"}}, "format: would have no effect without file"),
        ({"folder": "x"}, "folder: given 'x', but has no effect because data.train and data.valid are given"),
        ({"split": [0.9, 0.1, 0.0]}, "valid: given a table, but has no effect because data.split makes a valid part"),
        (
            {"split": [0.9, 0.2, 0.0]},
            "split: given \\[0.9, 0.2, 0.0\\], whose sum is 1.1; expected three fractions with the sum 1",
        ),
        ({"split": [0.0, 0.0, 1.0]}, "which leaves nothing to train on"),
        ({"train": {"parquet": "a", "split": "b"}}, "split: would have no effect without dataset"),
        ({"train": {"file": "a.tsv"}, "valid": {"file": "a.tsv"}}, "label: given 'label', expected a number, counted from 1"),
    ],
)
def test_a_wrong_config_of_labeled_texts_is_a_clear_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LabeledConfig.model_validate(labeled_options() | {"train": {"parquet": "a"}, "valid": {"parquet": "b"}} | given)


def test_the_hash_of_a_table_depends_on_every_file_and_not_on_its_place(tmp_path: Path) -> None:
    write_shards(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b") == content_hash(tmp_path / "b" / "train-*.parquet")
    write_table(tmp_path / "b" / "train-00001-of-00002.parquet", FLAT)
    assert content_hash(tmp_path / "a") != content_hash(tmp_path / "b")


def test_patterns_are_resolved_in_heed_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "there" / "wmt")
    monkeypatch.setenv("HEED_DATA", str(tmp_path / "there"))
    monkeypatch.chdir(tmp_path)
    assert list(raw_pairs(CorpusConfig(parquet="wmt/train-*.parquet", columns=("en", "de")))) == RAW


def final_weights(run: Path) -> dict[str, bytes]:
    files = sorted((run / "checkpoints" / "best").glob("*.safetensors"))
    assert files
    return {file.name: file.read_bytes() for file in files}


def test_a_translation_model_of_a_table_is_that_of_the_same_tsv(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text().splitlines()]
    nested = {"translation": [{"en": source, "de": target} for source, target in rows]}
    save(datasets.DatasetDict(train=datasets.Dataset.from_dict(nested)), tmp_path / "saved", num_shards={"train": 2})
    table = f'{{dataset="{tmp_path / "saved"}", split="train", columns=["en", "de"]}}'
    overrides = [f"data.{split}={table}" for split in ("train", "valid", "test")]
    assert heed("train", recipe, "--run", tmp_path / "a") == 0
    assert heed("train", recipe, *overrides, "--run", tmp_path / "b") == 0
    assert final_weights(tmp_path / "a") == final_weights(tmp_path / "b")
    recorded = json.loads((tmp_path / "b" / "run.json").read_text())["data"]
    assert list(recorded) == [str(tmp_path / "saved" / "train")]
    write_table(tmp_path / "saved" / "train" / "data-00000-of-00002.arrow", FLAT)
    assert heed("train", recipe, *overrides, "training.steps=8", "--run", tmp_path / "b") == 3


def test_a_language_model_of_a_table_is_that_of_the_same_text(tmp_path: Path) -> None:
    lines = ["the cat sees the dog", "a dog runs", ""] * 20
    for name in ("book", "valid"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        write_table(tmp_path / f"{name}.parquet", {"text": lines})
    (tmp_path / "recipe.toml").write_text((LANGUAGE + GPT).format(folder=tmp_path))
    tables = {"train": "book", "valid": "valid", "test": "book"}
    overrides = [f'data.{split}={{parquet="{tmp_path}/{name}.parquet", column="text"}}' for split, name in tables.items()]
    assert heed("train", tmp_path / "recipe.toml", "--run", tmp_path / "a") == 0
    assert heed("train", tmp_path / "recipe.toml", *overrides, "--run", tmp_path / "b") == 0
    assert final_weights(tmp_path / "a") == final_weights(tmp_path / "b")


def test_a_classifier_of_a_table_is_that_of_the_same_tsv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, texts = ["yes", "no"] * 20, ["the cat sees", "a dog runs"] * 20
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(labels, texts, strict=True)))
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    whole = datasets.Dataset.from_dict({"text": texts, "label": [int(label == "yes") for label in labels]}, features=features)
    save(datasets.DatasetDict(train=whole, validation=whole, test=whole), tmp_path / "saved")
    (tmp_path / "a.toml").write_text((CLASSIFICATION + GPT).format(folder=tmp_path))
    table = f'{{ dataset = "{tmp_path / "saved"}" }}'
    named = f'train = {table}\nvalid = {table}\ntest = {table}\nlabel = "label"\ntexts = ["text"]\n'
    (tmp_path / "b.toml").write_text((tmp_path / "a.toml").read_text().replace(f'folder = "{tmp_path}"\n', named))
    for name in "ab":
        assert heed("train", tmp_path / f"{name}.toml", "--run", tmp_path / name) == 0
    assert final_weights(tmp_path / "a") == final_weights(tmp_path / "b")
    capsys.readouterr()
    results = []
    for name in "ab":
        assert heed("evaluate", tmp_path / name, "--json") == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == {**results[1], "checkpoint": results[0]["checkpoint"]}


def test_heed_data_check_reads_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "a.parquet", FLAT)
    assert heed("data", "check", tmp_path / "a.parquet", "--json") == 3
    report = json.loads(capsys.readouterr().out)["corpora"][0]
    assert (report["lines"], report["kept"], report["problems"][0]["problem"]) == (5, 4, "empty")
    write_table(tmp_path / "b.parquet", {"url": ["u"] * 20, "en": SOURCES[:1] * 20, "de": TARGETS[:1] * 20})
    assert heed("data", "check", tmp_path / "b.parquet") == 2
    assert "b.parquet has 3 columns of text: url, en, de; expected two" in capsys.readouterr().err
    assert heed("data", "check", tmp_path / "b.parquet", "--columns", "en,de") == 0
    assert "20 lines, 20 pairs kept" in " ".join(capsys.readouterr().out.split())
    assert heed("data", "check", tmp_path / "b.parquet", "--columns", "en,fr") == 3
    assert heed("data", "check", tmp_path / "b.parquet", "--columns", "en") == 2
    assert "--columns: given 'en', expected two names" in capsys.readouterr().err
    assert heed("data", "check", write_pairs(tmp_path / "c.tsv"), "--columns", "en,de") == 2
    assert "--columns has no effect without a .parquet file" in capsys.readouterr().err
