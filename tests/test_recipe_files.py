"""Every recipe trains for two steps at a small size; recipes whose data is missing are skipped.

A recipe for a folder is trained on its validation set: training a tokenizer on the whole corpus takes minutes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from workshop import heed

from heedful.config import read_run
from heedful.data.sources import files_of
from heedful.data.splits import splits_of
from heedful.recipe_files import all_recipes, read_header

SMALL = ("training.steps=2", "training.validate_every=2", "task.validation_sentences=2", "data.batch_tokens=256")
NARROW = {"dim": 32, "feed_forward": 64}


@pytest.mark.parametrize("name", all_recipes())
def test_a_recipe_trains(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_run(all_recipes()[name]).config
    data = config.data
    if data.form != "pairs":
        {"text": text_recipe_runs, "labeled": labeled_recipe_runs}[data.form](name, tmp_path, capsys)
        return
    fewer = ["data.counts={train=500, valid=5, test=5}"] if data.builtin else []
    if data.folder is not None:
        if not os.environ.get("HEED_DATA"):
            pytest.skip(f"{name} needs the corpus {data.folder!r}: set HEED_DATA")
        assert all(file.is_file() for split in splits_of(data) for corpus in split for file in files_of(corpus))
        narrow = [f"model.{name}={size}" for name, size in NARROW.items() if name in type(config.model).model_fields]
        sides = ", ".join(f'"{language}"' for language in data.languages or ())
        fewer = [f'data.train={{folder="{data.folder}", languages=[{sides}], split="valid"}}', *narrow]
    if config.training.init:
        fewer.append('training.init=""')
    assert heed("train", name, *SMALL, *fewer, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def labeled_recipe_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without training.init."""
    (tmp_path / "some.tsv").write_text("0\tsome words of text\n1\tother words\n" * 20)
    model: Any = read_run(all_recipes()[name]).config.model
    elsewhere = [f'data.{split}="{tmp_path / "some.tsv"}"' for split in ("train", "valid", "test")]
    narrow = [f"model.dim={8 * model.heads}", "model.layers=1", 'training.init=""']
    assert heed("train", name, *SMALL[:2], *elsewhere, *narrow, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def text_recipe_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.txt").write_text("some words of text\n" * 200)
    split = f'{{file="{tmp_path / "some.txt"}"}}'
    model: Any = read_run(all_recipes()[name]).config.model
    elsewhere = [f"data={{form='text', train={split}, valid={split}, block=8, batch=2}}".replace("'", '"')]
    narrow = [f"model.dim={8 * model.heads}", "model.layers=1", "task.sample_length=4"]
    assert heed("train", name, *SMALL[:2], *elsewhere, *narrow, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


@pytest.mark.parametrize("name", all_recipes())
def test_a_header_has_a_purpose_and_a_result_has_machine_and_date(name: str) -> None:
    header = read_header(all_recipes()[name])
    assert header["purpose"]
    assert len({bool(header[field]) for field in ("result", "machine", "minutes", "date")}) == 1


def test_a_recipe_without_a_result_is_listed_as_not_measured_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.toml").write_text("# purpose: something new\n")
    (tmp_path / "old.toml").write_text("# purpose: something old\n# result: 12.3 BLEU\n# machine: a laptop\n")
    monkeypatch.setattr("heedful.recipe_files.recipe_folder", lambda: tmp_path)
    assert heed("recipes") == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == ["new", "  something new", "  not measured yet", "old", "  something old", "  12.3 BLEU", "  a laptop"]


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_the_list_is_wrapped_to_its_width_and_complete(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heed("recipes", "--json") == 0
    recipes = json.loads(capsys.readouterr().out)["recipes"]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert heed("recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if not line.startswith(" ")] == [recipe["name"] for recipe in recipes]
    words = " ".join(" ".join(lines).split())
    fields = ("purpose", "result", "machine", "minutes", "date")
    texts = [recipe[field] for recipe in recipes for field in fields if recipe[field]]
    assert texts and not [text for text in texts if " ".join(text.split()) not in words]
