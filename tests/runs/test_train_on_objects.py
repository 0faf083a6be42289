"""heedful.train with data as Python objects, and overrides as a dict or by keyword."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.errors import ConfigError, DataError
from heedful.runs.train import override_strings

PAIRS = [(f"w{i} w{i + 1}", f"w{i + 1} w{i}") for i in range(20)]
SMALL: dict[str, Any] = {
    "model": {"dim": 16, "layers": 1, "heads": 2, "feed_forward": 32},
    "tokenizer": {"kind": "words", "min_frequency": 1},
    "training": {"steps": 4, "save_every": 2, "validate_every": 4, "threads": 1},
}
LANGUAGE: dict[str, Any] = {
    "model": {"dim": 16, "layers": 1, "heads": 2, "max_positions": 16},
    "tokenizer": {"kind": "words", "min_frequency": 1},
    "data": {"block": 8, "batch": 2},
    "training": {"steps": 2, "save_every": 2, "validate_every": 2, "threads": 1},
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_pairs_are_trained_on_and_stored_in_the_run_folder() -> None:
    outcome = heedful.train("demo", run="run", train=PAIRS, valid=PAIRS[:4], **SMALL)
    assert outcome.step == 4
    assert len(Path("run/data/train.jsonl").read_text().splitlines()) == len(PAIRS)
    translator = heedful.Translator.load("run")
    assert translator.predict("w1 w2") == translator.predict(["w1 w2"])[0] == translator.translate(["w1 w2"])[0]


def test_objects_give_the_same_weights_as_a_file_of_them() -> None:
    Path("pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    data = {"train": {"tsv": "pairs.tsv"}, "valid": {"tsv": "pairs.tsv"}}
    heedful.train("demo", run="file", data=data, **SMALL)
    heedful.train("demo", run="objects", train=PAIRS, valid=PAIRS, **SMALL)
    file, objects = (heedful.load(run).model.state_dict() for run in ("file", "objects"))
    assert file and all(torch.equal(weights, objects[name]) for name, weights in file.items())


def test_a_run_continues_with_the_same_objects_only() -> None:
    heedful.train("demo", run="run", train=PAIRS, valid=PAIRS[:4], **SMALL)
    longer = SMALL | {"training": SMALL["training"] | {"steps": 6}}
    assert heedful.train("demo", run="run", train=PAIRS, valid=PAIRS[:4], **longer).step == 6
    with pytest.raises(DataError, match="train differs from the examples that run was started with"):
        heedful.train("demo", run="run", train=PAIRS[1:], valid=PAIRS[:4], **longer)


def test_texts_and_labeled_texts_are_data_of_their_tasks() -> None:
    texts = [f"w{i} w{i + 1} w{i + 2}" for i in range(20)]
    heedful.train("shakespeare-char", run="language", train=texts, valid=texts[:3], **LANGUAGE)
    assert heedful.TextGenerator.load("language").generate("w1", length=3)
    labeled = [("yes" if i % 2 else "no", text) for i, text in enumerate(texts)]
    task = {"name": "classification", "labels": ["yes", "no"]}
    parts = LANGUAGE | {"task": task, "data": {"form": "labeled", "batch": 4, "max_length": 8}}
    Path("labels.toml").write_text(
        "[data]\nform = 'labeled'\ntrain = {file = 'a.tsv'}\nvalid = {file = 'b.tsv'}\n"
        "[model]\nfamily = 'gpt'\n[tokenizer]\nshared = true\n"
    )
    heedful.train("labels.toml", run="labels", train=labeled, valid=labeled[:4], **parts)
    assert heedful.Classifier.load("labels").predict("w1 w2 w3") in ("yes", "no")


@pytest.mark.parametrize(
    ("recipe", "examples", "message"),
    [
        ("demo", [("a",)], "example 1 is \\('a',\\); expected a pair of texts"),
        ("demo", ["a b"], "example 1 is 'a b'; expected a pair of texts"),
        ("demo", [("a", "b"), ("a", 3)], "example 2 is \\('a', 3\\); expected a pair of texts"),
        ("shakespeare-char", [3], "example 1 is 3; expected a text"),
    ],
)
def test_an_example_of_another_kind_is_an_error_with_its_number(recipe: str, examples: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        heedful.train(recipe, run="run", train=examples, valid=examples)
    assert not Path("run/checkpoints").exists()


def test_training_objects_without_validation_objects_are_an_error() -> None:
    with pytest.raises(ConfigError, match="valid is missing"):
        heedful.train("demo", run="run", train=PAIRS)


def test_overrides_are_the_same_as_strings_as_a_dict_and_by_keyword() -> None:
    strings = ["model.dim=16", 'tokenizer.kind="words"', "seed=2"]
    assert override_strings(strings, {}) == strings
    assert override_strings({"model.dim": 16, "tokenizer.kind": "words", "seed": 2}, {}) == strings
    assert override_strings({}, {"model": {"dim": 16}, "tokenizer": {"kind": "words"}, "seed": 2}) == strings
    with pytest.raises(ConfigError, match=r"did you mean|unknown key"):
        heedful.train("demo", run="run", model={"dimm": 16})
