"""Files of attention structures: what is read, and one sentence for each kind of broken file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful.data.structure_files import read_structure
from heedful.errors import DataError
from heedful.nn.structure import CausalStructureConfig, CrossStructureConfig, StructureConfig

BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {  # file, options, message
    "size": ("1,0\n0,1\n", {}, "is 2 x 2; expected 3 x 3, as set in model.structure"),
    "shape": ("1,0,1\n0,1\n", {}, "line 2 has 2 numbers; expected 3, as in the first line"),
    "finite": ("0,0,0\n0,nan,0\n0,0,0\n", {"values": "bias"}, "has nan in row 1, column 1; expected a finite number"),
    "not a mask": ("1,0,0\n0,2,0\n0,0,1\n", {}, "has 2 in row 1, column 1; expected 0 or 1"),
    "no key": ("1,0,0\n0,0,0\n0,0,1\n", {}, "allows position 1 no attention: its row has no 1; expected at least one"),
    "words": ("1,0,a\n", {}, "line 1: 'a' is not a number; expected a number for each position"),
    "empty": ("", {}, "is empty; expected at least one line"),
    "unknown position": ("0,1\n1,3\n", {"kind": "edges"}, "line 2: '3' is no position; expected a number from 0 to 2"),
    "later only": ("0,1,0\n1,0,0\n0,0,1\n", {"causal": True}, "position 0 no attention: its row has no 1 up to its own column"),
    "edge to an earlier position": (
        "0,1\n2,1\n",
        {"causal": True, "kind": "edges", "directed": True},
        "line 2 has an edge from 2 to 1, an earlier position, which cannot attend to a later one; expected the earlier",
    ),
    "shape across": ("1,0\n0,1\n1,1\n", {"source_positions": 3}, "is 3 x 2; expected 3 x 3, as set in model.structure"),
    "columns": ("0,1,2\n", {"kind": "edges"}, "line 1 has 3 columns; expected 2, the positions of an edge"),
}


def structure(path: Path, *, causal: bool = False, **options: Any) -> StructureConfig:
    given: dict[str, Any] = {"kind": "matrix", "file": str(path), "positions": 3} | options
    kind = CrossStructureConfig if "source_positions" in options else CausalStructureConfig if causal else StructureConfig
    return kind(**given)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    text, options, message = BROKEN[name]
    (tmp_path / "file.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        read_structure(structure(tmp_path / "file.csv", **options))
    assert message in str(caught.value.args[0]) and "\n" not in caught.value.args[0]


def test_arrays_and_text_are_read_alike(tmp_path: Path) -> None:
    mask = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]])
    for name, array in (("bool", mask.astype(bool)), ("int", mask), ("float", mask.astype(np.float32))):
        np.save(tmp_path / f"{name}.npy", array)
        assert read_structure(structure(tmp_path / f"{name}.npy")).tolist() == mask.tolist()
    (tmp_path / "text.tsv").write_text("\n".join("\t".join(map(str, row)) for row in mask.tolist()))
    assert read_structure(structure(tmp_path / "text.tsv")).tolist() == mask.tolist()
    np.save(tmp_path / "objects.npy", np.array([None, 1]), allow_pickle=True)
    for broken in ("objects.npy", "text.tsv"):
        (tmp_path / "renamed.npy").write_bytes((tmp_path / broken).read_bytes())
        with pytest.raises(DataError, match=r"renamed\.npy is not an array of numbers\n"):
            read_structure(structure(tmp_path / "renamed.npy"))


@pytest.mark.parametrize("directed", [False, True])
def test_edges_are_a_mask_with_every_position_itself(directed: bool, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("from,to\n0,1\n0,1\n1,1\n")
    found = read_structure(structure(tmp_path / "edges.csv", kind="edges", directed=directed))
    assert found.tolist() == [[1, 0 if directed else 1, 0], [1, 1, 0], [0, 0, 1]]


def test_a_run_reads_the_matrix_once_and_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trained classifier has the matrix in its weights; its file can be removed. A run cannot be continued with another."""
    recipe, file = write_tiny_recipe("classification", tmp_path), tmp_path / "mask.npy"
    mask = (np.arange(16)[:, None] - np.arange(16) >= 0).astype(np.float32)
    np.save(file, mask)
    model = f'{{family="bert", dim=16, layers=1, heads=2, structure={{kind="matrix", file="{file}", positions=16}}}}'
    options: list[str | Path] = ["train", recipe, f"model={model}", "data.max_length=16"]
    assert heed(*options, "training.steps=2", "--run", tmp_path / "run") == 0
    np.save(file, np.ones((16, 16)))
    assert heed(*options, "training.steps=4", "--run", tmp_path / "run") == 3
    assert "mask.npy changed since the run" in capsys.readouterr().err
    file.unlink()
    found: Any = heedful.load(tmp_path / "run")
    assert torch.equal(found.model.base_model.structure.matrix, torch.from_numpy(mask))
    assert heed(*options, "--run", tmp_path / "other") == 3
    error = capsys.readouterr().err
    assert "mask.npy" in error and "kept" not in error  # the data has not been read yet
    assert heed("config", "show", tmp_path / "run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert "structure" in json.dumps(shown)
