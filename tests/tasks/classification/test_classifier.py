"""A trained classifier: examples of one or several texts, and invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed

from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.tasks.classification.predictor import Classifier


def test_a_string_is_an_example_of_one_text(tiny_runs: dict[str, Path]) -> None:
    classifier = Classifier.load(tiny_runs["classification"])
    (plain,), (tuple_,), (other,) = (
        classifier.predict_proba([example]) for example in ("the cat sees", ("the cat sees",), "t")
    )
    assert plain == tuple_ != other
    assert sum(plain.values()) == pytest.approx(1.0)
    assert classifier.predict_proba("the cat sees") == plain
    assert classifier.predict(["the cat sees"]) == [max(plain, key=lambda label: plain[label])]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([("a", "b")], "example 1 is ('a', 'b'); expected a text"),
        (["a", ()], "example 2 is (); expected a text"),
        (["a", (1,)], "example 2 is (1,); expected a text"),
    ],
)
def test_an_example_with_a_wrong_number_of_texts_is_an_error(tiny_runs: dict[str, Path], texts: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        Classifier.load(tiny_runs["classification"]).predict_proba(texts)
    assert error.value.args[0] == sentence


def test_a_text_too_long_to_tokenize_is_an_error(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="example 2 has 2,000,000 characters"):
        Classifier.load(tiny_runs["classification"]).predict_proba(["a", "a " * 10**6])


def test_nonfinite_probabilities_are_an_error(tiny_runs: dict[str, Path]) -> None:
    classifier = Classifier.load(tiny_runs["classification"])
    with torch.no_grad():
        classifier.classifier.head.bias[0] = float("nan")
    with pytest.raises(CheckpointError, match=f"not finite at example 1; the weights of {classifier.checkpoint}"):
        classifier.predict_proba(["the cat sees"])
    with pytest.raises(CheckpointError, match="not finite at an example"):
        classifier.evaluate("test")


def test_a_missing_data_folder_is_reported(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["classification"]
    real = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: path != run.parent and real(path))
    capsys.readouterr()
    assert heed("evaluate", run) == 3
    assert f"the folder of the run's data, {str(run.parent)!r}, was found neither here" in capsys.readouterr().err
