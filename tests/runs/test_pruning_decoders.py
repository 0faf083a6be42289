"""Pruning decoder-only models of every task: the smaller run has the same losses and can be trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from workshop import heed, write_pairs

import heedful
from heedful.nn.gates import gates
from heedful.runs.prune import HeadSelection, prune
from heedful.training import checkpoint

MODEL = """
[model]
family = "gpt"
dim = 16
layers = 2
heads = 2
position = "rotary"
dropout = 0.0

[tokenizer]
kind = "words"
min_frequency = 1

[training]
steps = 4
save_every = 2
validate_every = 4
report_every = 1
gates = { penalty = 0.1 }
"""
TASKS = {
    "translation": '[data]\ntrain = {{ tsv = "{table}" }}\nvalid = {{ tsv = "{table}" }}\nbatch_tokens = 128\n'
    "[task]\nvalidation_sentences = 4\n[search]\nmax_extra = 2\n",
    "language": '[data]\nform = "text"\ntrain = {{ file = "{table}" }}\nvalid = {{ file = "{table}" }}\n'
    'block = 8\nbatch = 4\n[task]\nname = "language"\nsamples = 0\n',
    "classification": '[data]\nform = "labeled"\ntrain = {{ file = "{table}" }}\nvalid = {{ file = "{table}" }}\nbatch = 8\n'
    '[task]\nname = "classification"\nlabels = ["no", "yes"]\n',
}


@pytest.fixture(scope="module", params=list(TASKS))
def gated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with gates; at the end those of the second layer and one of the first are closed."""
    folder = tmp_path_factory.mktemp(request.param)
    table, recipe, run = folder / "table.tsv", folder / "recipe.toml", folder / "run"
    lines = write_pairs(table).read_text().splitlines()
    if request.param == "classification":
        table.write_text("".join(f"{'yes' if 'w1' in line else 'no'}\t{line.split(chr(9))[0]}\n" for line in lines))
    recipe.write_text(TASKS[request.param].format(table=table) + MODEL)
    assert heed("train", recipe, "--run", run) == 0
    tensors, state = checkpoint.load(run / "checkpoints" / "step-4")
    first, second = sorted(name for name in tensors["model"] if name.endswith("log_a"))
    tensors["model"] |= {first: torch.tensor([-4.0, 0.5]), second: torch.tensor([-4.0, -4.0])}
    checkpoint.save(run / "checkpoints", 4, tensors, state)
    return run


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_removing_closed_heads_changes_no_loss(gated: Path, tmp_path: Path) -> None:
    result = prune(gated, tmp_path / "small")
    assert result.heads == {"within": (1, 0)} and result.heads_before == {"within": (2, 2)}
    small, whole = heedful.load(result.run), heedful.load(gated, "last")
    assert parameters(small.model) == result.parameters < result.parameters_before
    assert not gates(small.model)
    for pruned, unpruned in zip(small.training_losses(30), whole.training_losses(30), strict=True):
        with torch.inference_mode():
            assert_close(pruned(), unpruned(), atol=1e-5, rtol=1e-5)
    assert heed("evaluate", result.run, "--split", "valid") == 0
    assert heed("train", result.run / "config.toml", "training.steps=6") == 0
    assert checkpoint.load_state(result.run / "checkpoints" / "step-6")["train_state"]["step"] == 6
    assert "| within | 4 | 1 | 1, 0 |" in (result.run / "README.md").read_text()


def test_a_ranking_keeps_the_head_with_an_effect(gated: Path, tmp_path: Path) -> None:
    """Only one of four heads has an effect, so it is kept."""
    for by in ("gradient", "ablation"):
        result = prune(gated, tmp_path / by, HeadSelection({"within": 1}, by=by, sentences=30))
        assert result.heads == {"within": (1, 0)}
        assert result.figures == pytest.approx(prune(gated, tmp_path / f"all-{by}").figures, rel=1e-4)
