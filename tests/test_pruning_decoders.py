"""A decoder alone loses heads, whatever its task: the smaller run is judged as the larger one was, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from workshop import heed, write_pairs

import heedful
from heedful.nn.gates import gates
from heedful.pruning import HeadSelection, prune
from heedful.training import checkpoint
from heedful.training_losses import LOSSES, training_losses

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
    "classification": '[data]\nform = "labeled"\ntrain = "{table}"\nvalid = "{table}"\nbatch = 8\n'
    '[task]\nname = "classification"\nlabels = ["no", "yes"]\n',
}


@pytest.fixture(scope="module", params=list(TASKS))
def gated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with gates, of which those of the second layer are closed at the end, and one of the first."""
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


def test_what_gates_closed_goes_and_the_rest_says_the_same(gated: Path, tmp_path: Path) -> None:
    made = prune(gated, tmp_path / "small")
    assert made.heads == {"within": (1, 0)} and made.heads_before == {"within": (2, 2)}
    small, whole = heedful.load(made.run), heedful.load(gated, "last")
    assert parameters(small.model) == made.parameters < made.parameters_before
    assert not gates(small.model)
    for less, more in zip(training_losses(small, 30), training_losses(whole, 30), strict=True):
        with torch.inference_mode():
            assert_close(less(), more(), atol=1e-5, rtol=1e-5)
    assert heed("evaluate", made.run, "--split", "valid") == 0
    assert heed("train", made.run / "config.toml", "training.steps=6") == 0
    assert checkpoint.load_state(made.run / "checkpoints" / "step-6")["train_state"]["step"] == 6
    assert "| within | 4 | 1 | 1, 0 |" in (made.run / "README.md").read_text()


def test_a_ranking_keeps_the_heads_that_matter(gated: Path, tmp_path: Path) -> None:
    """Of four heads only one does anything, so it is the one that stays."""
    for by in ("gradient", "ablation"):
        made = prune(gated, tmp_path / by, HeadSelection({"within": 1}, by=by, sentences=30))
        assert made.heads == {"within": (1, 0)}
        assert made.figures == pytest.approx(prune(gated, tmp_path / f"all-{by}").figures, rel=1e-4)


def test_every_task_has_samples() -> None:
    from heedful.build import PREDICTORS

    assert LOSSES.keys() == PREDICTORS.keys()
