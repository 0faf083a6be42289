"""A model too large for the machine is an error before memory is allocated, and the check has no side effect."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

from heedful.errors import OutOfMemory
from heedful.models import MODELS
from heedful.runs import memory_check
from heedful.runs.build import make_model
from heedful.runs.config import Run, read_run
from heedful.runs.memory_check import count_parameters_on_meta, machine_memory, require_memory

CPU = torch.device("cpu")
SMALL = {"gpt": ["model.heads=2"], "convs2s": ["model.channels=16"], "bahdanau": ["model.readout=8"]}


def run_of(*overrides: str) -> Run:
    return read_run(None, ["data.builtin=true", *overrides]).config


@pytest.mark.parametrize("family", MODELS)
def test_the_count_is_that_of_the_real_model_and_does_not_change_its_initial_weights(family: str) -> None:
    run = run_of(f"model.family={family}", "model.dim=16", *SMALL.get(family, []))
    before = make_model(run, 20, 30)
    state = torch.random.get_rng_state()
    count = count_parameters_on_meta(run, 20, 30)
    assert torch.equal(torch.random.get_rng_state(), state)
    after = make_model(run, 20, 30)
    assert count == sum(parameter.numel() for parameter in before.parameters())
    assert all(map(torch.equal, before.state_dict().values(), after.state_dict().values()))


def test_the_check_takes_a_fraction_of_a_second() -> None:
    started = time.process_time()
    require_memory(run_of(), CPU)
    assert time.process_time() - started < 0.2


def test_the_optimizer_state_is_included(monkeypatch: pytest.MonkeyPatch) -> None:
    run, plain = run_of("model.dim=16", "model.heads=2"), run_of("model.dim=16", "model.heads=2", "training.optimizer.name=sgd")
    parameters = count_parameters_on_meta(run, 16, 16)
    monkeypatch.setattr(memory_check, "machine_memory", lambda: 4 * parameters * 3)
    require_memory(plain, CPU)
    with pytest.raises(OutOfMemory, match=f"the model has {parameters:,} parameters, and training it takes at least"):
        require_memory(run, CPU)


def test_the_memory_limit_of_a_container_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory_check, "CONTAINER_LIMIT", limit)
    whole = machine_memory()
    limit.write_text("max\n")
    assert machine_memory() == whole
    limit.write_text("1000\n")
    assert machine_memory() == 1000


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("model.dim=200000", 6),
        ("model.layers=100000", 2),
        ("model.feed_forward=1000000 model.dim=100000 model.layers=100", 6),
        ("model.max_positions=1000000 model.position=learned model.dim=100000", 6),
    ],
)
def test_a_model_too_large_is_an_error_before_data_is_read(
    override: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "pairs.tsv").unlink()
    started = time.process_time()
    assert heed("train", recipe, *override.split(), "--run", tmp_path / "run") == code
    assert time.process_time() - started < 5
    message = capsys.readouterr().err
    assert "but this machine has" in message if code == 6 else "expected an integer from 1 to 1,000" in message
    assert not (tmp_path / "run").exists()
