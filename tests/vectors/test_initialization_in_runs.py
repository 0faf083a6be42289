"""A run whose embeddings are initialized from word vectors: scaled, frozen, and recorded to detect another file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

from heedful.runs.load import load
from heedful.vectors.files import load_vectors

FROZEN = ["training.vectors_side=source", "training.freeze_vectors=true", "tokenizer.shared=false", "model.tie=none"]


def test_frozen_vectors_stay_and_everything_else_is_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, vectors = write_recipe(tmp_path), tmp_path / "w.vec"
    dim = load_dim(recipe, tmp_path)
    vectors.write_text(f"2 {dim}\n" + "".join(f"w{n} {' '.join(str(n + i) for i in range(dim))}\n" for n in (1, 2)))
    run = tmp_path / "run"
    changed = [f"training.vectors={vectors}", *FROZEN, "training.steps=4"]
    assert heed("train", recipe, *changed, "--run", run) == 0
    assert "2 of" in capsys.readouterr().err
    model, tokenizer = load(run).model, load(run).system.source_tokenizer
    rows = model.embeddings()["source"].weight[[tokenizer.encode(word)[0] for word in ("w1", "w2")]]  # (2, dim)
    given = torch.as_tensor(load_vectors(vectors).values)
    ratio = rows / given  # one constant: the scale of the model's own embeddings
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4)
    vectors.write_text(vectors.read_text().replace("w2", "w3"))
    assert heed("train", recipe, *changed[:-1], "training.steps=6", "--run", run) != 0


def load_dim(recipe: Path, folder: Path) -> int:
    assert heed("train", recipe, "training.steps=1", "--run", folder / "first") == 0
    return int(load(folder / "first").run.model.dim)


def test_what_vectors_would_overwrite_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("train", write_recipe(tmp_path), "training.vectors=v.vec", "training.init=runs/x") == 2
    assert "set one" in capsys.readouterr().err
