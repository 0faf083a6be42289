"""An export translates without the package, with the same result as its run; it is complete or absent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_tasks import write_tiny_recipe
from workshop import heed, write_recipe

import heedful
from heedful.exchange import exporting
from heedful.exchange.onnx_graphs import START, STEP
from heedful.exchange.standalone import Translator

LINES = ["w1 w2 w3", "w7", "w19 w4 w4 w11 w2 strange", "w3 w3 w3 w3 w3 w3 w3 w3 w3", ""]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pruned run; one layer of encoder and decoder and one cross-attention have no heads left."""
    folder = tmp_path_factory.mktemp("small")
    recipe, run = write_recipe(folder), folder / "run"
    assert heed("train", recipe, "search.max_extra=3", "model.position=rotary", "--run", run) == 0
    keep = [part for kind in ("encoder", "decoder", "cross") for part in ("--keep", f"{kind}=1")]
    assert heed("prune", run, *keep, "--sentences", "20", "--out", folder / "pruned") == 0
    return folder / "pruned"


@pytest.fixture(scope="module")
def exported(small: Path) -> Path:
    assert heed("export", small, "--out", small.parent / "onnx", "--sentences", "9") == 0
    return small.parent / "onnx"


def test_a_pruned_run_is_exported_and_compared(small: Path, exported: Path) -> None:
    facts = json.loads((exported / "export.json").read_text())
    assert facts["parity"]["same"] == facts["parity"]["sentences"] == 9
    assert facts["parity"]["logits"] < 1e-4 and facts["parity"]["tokens"] > 9
    assert {path.name for path in exported.iterdir()} == {
        "start.onnx", "step.onnx", "tokenizer.json", "export.json", "translate.py", "README.md",
    }  # fmt: skip
    assert not list(small.parent.glob(".onnx*"))


def test_it_translates_without_the_package_as_the_run_does(small: Path, exported: Path) -> None:
    done = subprocess.run(
        [sys.executable, "translate.py"],
        cwd=exported, input="".join(f"{line}\n" for line in LINES), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == heedful.Translator.load(small).translate(LINES)
    assert "heedful" not in (exported / "translate.py").read_text()


@pytest.mark.parametrize(
    "search", [{"beam": 1}, {"beam": 3, "length_penalty": 0.0}, {"beam": 4, "penalty": "power", "min_length": 4}]
)
def test_its_beam_search_equals_ours(small: Path, exported: Path, search: dict[str, Any]) -> None:
    translator = Translator(exported)
    translator.facts["search"] |= search
    expected = heedful.Translator.load(small).translate(LINES, **search)
    assert [translator.translate(line) for line in LINES] == expected


def test_a_model_that_differs_is_not_written(
    small: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def write_another(model: Any, folder: Path, image: Any) -> None:
        for name in (START, STEP):  # graphs of the same run, written before
            shutil.copy(exported / name, folder)
        with torch.no_grad():
            model.embedding.target.weight.mul_(factor)  # of the model that they are compared with

    monkeypatch.setitem(exporting.FORMS, "onnx", exporting.FORMS["onnx"]._replace(write=write_another))
    factor = 2
    assert heed("export", small, "--out", tmp_path / "new", "--sentences", "5") == 1
    assert "differs from the original" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    factor = 1
    assert heed("export", small, "--out", tmp_path / "new", "--sentences", "5") == 0


def test_existing_folders_unknown_forms_and_missing_runs_are_errors(
    small: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (exported / "export.json").read_bytes()
    assert heed("export", small, "--out", exported) == 2
    assert "exists already" in capsys.readouterr().err and (exported / "export.json").read_bytes() == before
    assert heed("export", small, "--to", "onx", "--out", tmp_path / "new") == 2
    assert "did you mean 'onnx'" in capsys.readouterr().err
    assert heed("export", tmp_path / "nothing", "--out", tmp_path / "new") == 4


def test_missing_packages_are_an_error_with_the_install_command(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert heed("export", small, "--out", tmp_path / "new") == 2
    assert "heedful[exchange]" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_captioner_is_exported_and_compared(tmp_path: Path) -> None:
    """Its start graph reads the bytes of any number of images; both graphs give the captions of the run."""
    recipe = write_tiny_recipe("captioning", tmp_path)
    assert heed("train", recipe, 'model.image_encoder="resnet"', "training.steps=2", "--run", tmp_path / "run") == 0
    found = exporting.export(tmp_path / "run", tmp_path / "onnx", sentences=5)
    assert found.parity.logits < 1e-4 and found.parity.same == found.parity.sentences > 1 and found.parity.tokens > 5
    facts = json.loads((tmp_path / "onnx/export.json").read_text())
    assert facts["image"].keys() == {"height", "width", "channels"} and "source" not in facts["tokenizers"]
    assert "translate.py" not in found.files


def test_a_task_that_cannot_be_exported_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_tiny_recipe("image_classification", tmp_path)
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "run") == 0
    assert heed("export", tmp_path / "run", "--out", tmp_path / "onnx") == 2
    sentence = "is a run of task 'image_classification', which cannot be exported; expected one of: translation, captioning"
    assert sentence in capsys.readouterr().err and not (tmp_path / "onnx").exists()
