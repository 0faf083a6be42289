"""The benchmark of chat: runs are trained and scored on the same replies, and compared reply by reply."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import chat
import numpy as np
import pytest

pytestmark = pytest.mark.benchmark

RECIPE = """
[data]
form = "dialogues"
train = {{ file = "{file}" }}
valid = {{ file = "{file}" }}
test = {{ file = "{file}" }}
turns = {turns}

[task]
name = "chat"
validation_replies = 2

[tokenizer]
kind = "words"
min_frequency = 1

[model]
family = "sutskever"
dim = 16
layers = 1

[training]
steps = 2
save_every = 2
validate_every = 2
"""


def test_runs_are_trained_scored_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "dialogues.txt", tmp_path / "chat.json"
    file.write_text("".join(f"question {i}\tanswer {i}\tthanks\tbye\n" for i in range(12)))
    recipes = []
    for turns in (1, 3):
        recipes.append(tmp_path / f"turns{turns}.toml")
        recipes[-1].write_text(RECIPE.format(file=file, turns=turns))
    options = ["--work", str(tmp_path / "runs"), "--seeds", "1", "2", "--output", str(output), "--set", "training.threads=1"]
    assert chat.main([*options, "--recipes", *map(str, recipes)]) == 0
    results = json.loads(output.read_text())
    assert results["replies"] == 36 and len(results["models"]) == 2 and results["winner"] in results["models"]
    for figures in results["models"].values():
        assert figures["interval"][0] <= figures["perplexity"] <= figures["interval"][1]
        assert figures["perplexity"] == pytest.approx(np.mean(figures["seeds"]), abs=1e-3)
        assert [*figures["by_turns"]] == ["1", "2", "3"]
    ((_, pair),) = results["paired"].items()
    assert pair["interval"][0] <= pair["difference"] <= pair["interval"][1]
    shutil.rmtree(tmp_path / "runs" / "turns1-1")  # scores are kept
    other = tmp_path / "again.json"
    assert chat.main([*options, "--recipes", *map(str, recipes), "--jobs", "2", "--output", str(other)]) == 0
    assert json.loads(other.read_text())["models"] == results["models"]


def test_runs_at_once_are_processes_and_one_that_fails_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output, recipe = tmp_path / "dialogues.txt", tmp_path / "chat.json", tmp_path / "one.toml"
    file.write_text("".join(f"question {i}\tanswer {i}\n" for i in range(12)))
    recipe.write_text(RECIPE.format(file=file, turns=1))
    options = ["--work", str(tmp_path / "runs"), "--seeds", "1", "2", "--output", str(output), "--set", "training.threads=1"]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one-2").write_text("a file where the run folder should be")
    assert chat.main([*options, "--recipes", str(recipe), "--jobs", "2"]) == 1
    assert len(json.loads(output.read_text())["models"][str(recipe)]["seeds"]) == 1
    assert "seed 2: failed" in capsys.readouterr().out


def test_a_model_compared_with_itself_has_no_difference_and_other_replies_are_refused() -> None:
    one = chat.Scores(np.array([1.0, 4.0]), np.array([2, 3]), [1, 2], "same", 10, 2)
    assert chat.compare([one], [one])["difference"] == 0.0
    better = one._replace(losses=one.losses - 0.5)
    found = chat.compare([one], [better])
    assert found["difference"] == pytest.approx(-1.0 / 5) and found["replies_better"] == 1.0
    with pytest.raises(SystemExit, match="different"):
        chat.refuse_other_replies({"a": [one], "b": [one._replace(tokens=np.array([2, 4]))]})
