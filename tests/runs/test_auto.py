"""Options with the default "auto": what they become on each device, and that a run keeps what it was started with."""

from __future__ import annotations

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import freeze
import pytest
import torch
from tiny_tasks import train_tiny_runs
from workshop import heed, write_idx, write_recipe

from heedful.runs import auto
from heedful.runs.auto import describe_choices, resolve, resolve_as_stored
from heedful.runs.config import Run, read_run, run_as_toml
from heedful.runs.load import load
from heedful.runs.recipes import all_recipes

PAIRS = ("data.builtin=true",)
TEXT = ("data.form=text", "data.file=x", "task.name=language", "model.family=gpt", "tokenizer.kind=characters")
LABELED = ("data.form=labeled", "data.folder=x", "task.name=classification", "task.labels=[a,b]", "model.family=gpt")
CPU, MPS, GPU = (torch.device(name) for name in ("cpu", "mps", "cuda"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that multiplies bf16."""
    monkeypatch.setattr(auto, "multiplies_bf16", lambda device: device.type == "cuda")


def chosen(device: torch.device, *overrides: str) -> tuple[object, object, object]:
    """Precision, CUDA graphs and padding of a config on a device."""
    config = resolve(read_run(None, overrides).config, device)
    return config.training.precision, config.training.cuda_graphs, getattr(config.data, "pad_to_multiple_of", None)


@pytest.mark.parametrize("device", [CPU, MPS], ids=str)
@pytest.mark.parametrize("overrides", [PAIRS, TEXT, LABELED], ids=["pairs", "text", "labeled"])
def test_without_a_gpu_nothing_is_turned_on(device: torch.device, overrides: tuple[str, ...]) -> None:
    before = read_run(None, overrides).config
    after = resolve(before, device)
    assert chosen(device, *overrides) == ("fp32", False, None if overrides is TEXT else 1)
    assert describe_choices(before, after) == ""
    plain = [
        "training.precision=fp32",
        "training.cuda_graphs=false",
        *(() if overrides is TEXT else ("data.pad_to_multiple_of=1",)),
    ]
    assert run_as_toml(after) == run_as_toml(read_run(None, [*overrides, *plain]).config)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("overrides", "padding"), [(PAIRS, 16), (TEXT, None), (LABELED, 16)], ids=["pairs", "text", "labeled"])
def test_a_gpu_uses_bf16_cuda_graphs_and_few_shapes(overrides: tuple[str, ...], padding: int | None) -> None:
    assert chosen(GPU, *overrides) == ("bf16", True, padding)


def test_a_gpu_that_only_emulates_bf16_uses_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert chosen(GPU, *PAIRS) == ("fp32", True, 16)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "forbids",
    ["training.compile=true", "training.recompute=true", "task.sequence.method=risk", "data.pad_to_multiple_of=1"],
)
def test_cuda_graphs_stay_off_where_a_step_cannot_be_captured(forbids: str) -> None:
    assert chosen(GPU, *PAIRS, forbids) == ("bf16", False, 1)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("training.precision=fp32", ("fp32", True, 16)),
        ("training.precision=fp16", ("fp16", True, 16)),
        ("training.cuda_graphs=false", ("bf16", False, 1)),
        ("data.pad_to_multiple_of=12", ("bf16", True, 12)),
    ],
)
def test_a_value_that_was_set_is_kept(given: str, expected: tuple[object, ...]) -> None:
    assert chosen(GPU, *PAIRS, given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("training.precision=bf16", ("bf16", False, 1)),
        ("training.cuda_graphs=true", ("fp32", True, 1)),
        ("data.pad_to_multiple_of=8", ("fp32", False, 8)),
    ],
)
def test_a_value_that_was_set_is_kept_on_a_cpu(given: str, expected: tuple[object, ...]) -> None:
    assert chosen(CPU, *PAIRS, given) == expected


@pytest.fixture
def tiny_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UD English EWT with two sentences, Fashion-MNIST with a hundred images: recipes with `task.labels = "auto"` collect their
    labels from the training data."""
    folder = tmp_path / "corpora" / "ud-en-ewt"
    folder.mkdir(parents=True)
    sentence = "1\tIt\t_\tPRON\t_\t_\t_\t_\t_\t_\n2\trains\t_\tVERB\t_\t_\t_\t_\t_\t_\n\n"
    for split in ("train", "valid", "test"):
        (folder / f"{split}.conllu").write_text(sentence * 2)
    write_idx(folder.parent / "fashion-mnist", (28, 28), labels=10)
    monkeypatch.setenv("HEED_DATA", str(folder.parent))


@pytest.mark.usefixtures("gpu", "tiny_corpora")
@pytest.mark.parametrize("name", all_recipes())
def test_the_resolved_config_of_every_recipe_can_be_stored_and_read_back(name: str, tmp_path: Path) -> None:
    resolved = resolve(read_run(all_recipes()[name]).config, GPU)
    text = run_as_toml(resolved)
    (tmp_path / "config.toml").write_text(text)
    undecided = [line for line in text.splitlines() if '"auto"' in line]
    assert undecided == ['distributed = "auto"']  # depends on the number of processes, which may change
    assert run_as_toml(read_run(tmp_path / "config.toml").config) == text


@pytest.mark.usefixtures("gpu")
def test_one_line_names_what_was_turned_on_and_how_to_turn_it_off() -> None:
    def line(*overrides: str) -> str:
        given = read_run(None, [*PAIRS, *overrides]).config
        return describe_choices(given, resolve(given, GPU))

    assert line() == (
        "chosen for this GPU: training.precision=bf16 training.cuda_graphs=true data.pad_to_multiple_of=16; to turn off: "
        "training.precision=fp32 training.cuda_graphs=false data.pad_to_multiple_of=1"
    )
    assert line("training.precision=bf16", "training.cuda_graphs=false") == ""
    off = line().rpartition(": ")[2].split()
    assert line(*off) == "", "the options that it names turn everything off"


@pytest.mark.usefixtures("gpu")
def test_a_run_is_continued_with_its_own_values_on_any_device() -> None:
    given = read_run(None, PAIRS).config
    started = resolve(given, GPU)
    assert resolve_as_stored(given, started) == started
    own: Run = read_run(None, [*PAIRS, "training.precision=fp32"]).config
    assert resolve_as_stored(own, started).training.precision == "fp32", "a value that was set is compared, not replaced"


def stored(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


@pytest.mark.parametrize("task", ["translation", "language", "classification"])
def test_a_run_stores_the_resolved_values(task: str, tiny_runs: dict[str, Path]) -> None:
    config = stored(tiny_runs[task])
    assert (config["training"]["precision"], config["training"]["cuda_graphs"]) == ("fp32", False)
    assert config["data"].get("pad_to_multiple_of") == (None if task == "language" else 1)


def test_a_resumed_run_uses_the_stored_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, set_once = write_recipe(tmp_path), ("training.precision=bf16", "data.pad_to_multiple_of=4")
    for steps, overrides in ((2, set_once), (4, ())):
        assert heed("train", recipe, *overrides, f"training.steps={steps}", "--run", tmp_path / "parts") == 0
    assert stored(tmp_path / "parts")["training"]["precision"] == "bf16"
    assert stored(tmp_path / "parts")["data"]["pad_to_multiple_of"] == 4
    assert heed("train", recipe, *set_once, "training.steps=4", "--run", tmp_path / "whole") == 0
    weights = [(tmp_path / run / "checkpoints/step-4/model.safetensors").read_bytes() for run in ("parts", "whole")]
    assert weights[0] == weights[1]
    assert heed("train", recipe, "training.precision=fp32", "training.steps=6", "--run", tmp_path / "parts") == 2
    assert "training.precision: given 'fp32', but the run has 'bf16'" in capsys.readouterr().err


@pytest.mark.usefixtures("gpu")
def test_the_choices_are_printed_when_a_run_is_started_and_not_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auto, "resolve", lambda config, device: resolve(config, GPU))  # and the run trains on the CPU
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    for steps, count in ((2, 1), (4, 0)):
        assert heed("train", recipe, f"training.steps={steps}", "--run", run, "--device", "cpu") == 0
        assert capsys.readouterr().err.count("chosen for this GPU: training.precision=bf16 ") == count
    assert (stored(run)["training"]["cuda_graphs"], stored(run)["data"]["pad_to_multiple_of"]) == (True, 16)


def losses_of(run: Path) -> list[float]:
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in logged if line["kind"] == "train"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "task", "family", "model", "others"), freeze.RUNS, ids=[run[0] for run in freeze.RUNS])
def test_every_family_trains_on_a_gpu_with_the_losses_of_eager_training(
    name: str, task: str, family: str, model: str, others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    freeze.write_data()
    Path("recipe.toml").write_text(freeze.TASKS[task] + freeze.COMMON)
    options = [f"model.family={family}", *(f"model.{option}" for option in model.split()), *others.split()]
    eager = ["training.cuda_graphs=false", *(() if task == "language" else ("data.pad_to_multiple_of=16",))]
    assert heed("train", "recipe.toml", *options, "--run", "auto", "--device", "cuda") == 0
    if stored(Path("auto"))["training"]["cuda_graphs"]:
        assert heed("train", "recipe.toml", *options, *eager, "--run", "eager", "--device", "cuda") == 0
        assert losses_of(Path("auto")) == pytest.approx(losses_of(Path("eager")), rel=0.02)
    else:
        assert "sequence" in name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_every_task_trains_on_a_gpu_without_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = train_tiny_runs(tmp_path)
    assert capsys.readouterr().err.count("chosen for this GPU: training.precision=") == 4
    for run in runs.values():
        assert stored(run)["training"]["cuda_graphs"] is True
        assert load(run, device="cuda").run.training.precision != "auto"
