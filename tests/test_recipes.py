"""Every recipe trains two steps, as it stands but for a smaller batch; a recipe for data that is not here is skipped."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from workshop import heed

from heedful.config import read_run
from heedful.recipe_book import all_recipes, header

SMALL = ("training.steps=2", "training.validate_every=2", "task.validation_sentences=2", "data.batch_tokens=256")


@pytest.mark.parametrize("name", all_recipes())
def test_the_recipe_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_run(all_recipes()[name]).config
    if config.data.folder is not None and not os.environ.get("HEED_DATA"):
        pytest.skip(f"{name} needs the corpus {config.data.folder!r}: set HEED_DATA")
    fewer = ("data.counts={train=500, valid=5, test=5}",) if config.data.builtin else ()
    assert heed("train", name, *SMALL, *fewer, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


@pytest.mark.parametrize("name", all_recipes())
def test_the_header_says_what_it_is_for(name: str) -> None:
    told = header(all_recipes()[name])
    assert told["purpose"] and told["machine"]
