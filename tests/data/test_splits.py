from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from heedful.data.sources import CorpusConfig
from heedful.data.splits import Counts, DataConfig, Splits, splits_of, splits_of_files
from heedful.errors import ConfigError, DataError

FILES = {"source": "a.en", "target": "a.de"}


def folder_with(path: Path, *splits: str) -> str:
    for split in splits:
        for language in ("en", "de"):
            (path / f"{split}.{language}").write_text("x\n")
    return str(path)


def test_a_table_is_a_list_of_one() -> None:
    one = DataConfig.model_validate({"train": FILES, "valid": FILES})
    many = DataConfig.model_validate({"train": [FILES], "valid": [FILES]})
    assert one == many
    assert splits_of(one) == Splits((CorpusConfig(source="a.en", target="a.de"),), (CorpusConfig.model_validate(FILES),), ())


def test_a_folder_provides_all_splits(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "train", "valid", "test2016")
    splits = splits_of(DataConfig(folder=folder, languages=("en", "de")))
    assert splits == Splits(
        *((CorpusConfig(folder=folder, languages=("en", "de"), split=name),) for name in ("train", "valid", "test"))
    )


def test_a_folder_may_have_no_test_set(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "train", "valid")
    assert splits_of(DataConfig(folder=folder, languages=("en", "de"))).test == ()


def test_a_table_of_a_split_overrides_the_folder(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "train", "valid", "test")
    data = DataConfig.model_validate({"folder": folder, "languages": ["en", "de"], "test": {"tsv": "t.tsv"}})
    splits = splits_of(data)
    assert splits.test == (CorpusConfig(tsv="t.tsv"),)
    assert splits.train[0].folder == folder


def test_builtin_uses_its_counts() -> None:
    splits = splits_of(DataConfig(builtin=True, counts=Counts(train=7)))
    assert [(corpora[0].split, corpora[0].count) for corpora in splits] == [("train", 7), ("valid", 500), ("test", 500)]


def test_the_split_of_a_folder_defaults_to_the_name_of_the_table() -> None:
    folder = {"folder": "f", "languages": ["en", "de"]}
    data = DataConfig.model_validate({"train": folder, "valid": folder, "test": {**folder, "split": "test2017"}})
    assert [corpora[0].split for corpora in splits_of(data)] == ["train", "valid", "test2017"]


@pytest.mark.parametrize(
    "given",
    [
        {"train": FILES, "valid": FILES, "strict": True},
        {"train": [FILES, {"tsv": "b.tsv", "weight": 2.0, "tag": "<2de>", "columns": [2, 1]}], "valid": FILES},
        {"folder": "multi30k", "languages": ["en", "de"], "batch_tokens": 1024},
        {"builtin": True, "counts": {"train": 10}},
    ],
)
def test_a_config_survives_a_round_trip(given: dict[str, object]) -> None:
    data = DataConfig.model_validate(given)
    written = data.model_dump(exclude_none=True)
    assert DataConfig.model_validate(written) == data
    assert isinstance(written.get("train", {}), list) == isinstance(given.get("train"), list)


WRONG: dict[str, tuple[dict[str, object], str, str]] = {
    "nothing": ({}, "", "train and valid missing; expected a table of files, or folder, or builtin"),
    "no valid": ({"train": FILES}, "", "valid missing"),
    "two short forms": (
        {"folder": "a", "languages": ["en", "de"], "builtin": True},
        "",
        "folder and builtin are both given",
    ),
    "languages alone": (
        {"train": FILES, "valid": FILES, "languages": ["en", "de"]},
        "",
        "languages would have no effect without folder",
    ),
    "no languages": ({"folder": "a"}, "", "folder is given without languages"),
    "one language": ({"folder": "a", "languages": ["en", "en"]}, "", "expected different values for source and target"),
    "counts alone": (
        {"train": FILES, "valid": FILES, "counts": {}},
        "",
        "counts would have no effect without builtin",
    ),
    "temperature": ({"train": FILES, "valid": FILES, "temperature": 2.0}, "", "temperature would have no effect"),
    "weight": ({"train": FILES, "valid": {**FILES, "weight": 2}}, "", "valid: weight would have no effect"),
    "misspelt in a table": ({"train": {"sorce": "a"}, "valid": FILES}, "train.sorce", "Extra inputs"),
    "misspelt in a list": ({"train": [FILES, {"sorce": "a"}], "valid": FILES}, "train.1.sorce", "Extra inputs"),
    "ratio": ({"train": FILES, "valid": FILES, "max_ratio": 1}, "max_ratio", "greater than 1"),
    "budget": ({"train": FILES, "valid": FILES, "batch_tokens": 0}, "batch_tokens", "greater than or equal to 1"),
    "empty list": ({"train": [], "valid": FILES}, "train", "at least 1 item"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_config_is_an_error_with_path_and_message(case: str) -> None:
    given, where, message = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        DataConfig.model_validate(given)
    messages = {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}
    assert message in messages[where]


def test_files_on_the_command_line_become_splits() -> None:
    assert splits_of_files(["a.en", "a.de", "b.tsv.gz", "c.jsonl"]) == Splits(
        (CorpusConfig(source="a.en", target="a.de"),), (CorpusConfig(tsv="b.tsv.gz"),), (CorpusConfig(jsonl="c.jsonl"),)
    )


@pytest.mark.parametrize("files", [[], ["a"], ["a", "b", "c"], ["a.tsv"] * 4])
def test_a_wrong_number_of_files_is_a_usage_error(files: list[str]) -> None:
    with pytest.raises(ConfigError, match="expected a source and a target file"):
        splits_of_files(files)


def test_one_file_for_both_sides_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match="'a' is given as both source and target"):
        splits_of_files(["a", "a"])


def test_a_missing_folder_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        splits_of(DataConfig(folder=str(tmp_path / "nowhere"), languages=("en", "de")))


def test_configs_and_the_catalog_load_without_numpy() -> None:
    code = "import sys, heedful.data.splits, heedful.data.fetch; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_test_set_that_comes_with_other_training_data_is_not_used() -> None:
    own = CorpusConfig(tsv="mine.tsv")
    assert splits_of(DataConfig(builtin=True)).test
    assert splits_of(DataConfig(builtin=True, train=(own,), valid=(own,))).test == ()
