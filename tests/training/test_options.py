"""Options of [training] do what their descriptions say."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from workshop import heed, write_pairs, write_recipe

from heedful.runs import train as training
from heedful.runs.load import load
from heedful.tasks.translation.task import TranslationTask
from heedful.training import loop, retention
from heedful.training.checkpoint import load_tensors
from heedful.training.compiling import with_fallback
from heedful.training.nonfinite import NonFiniteGuard
from heedful.training.schedules import SCHEDULES, ScheduleConfig
from heedful.training.train_state import Direction, TrainState

QUICK = ("training.schedule.learning_rate=1e-2", "training.schedule.name=constant", "training.schedule.warmup=5")


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def model_of(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")


def test_the_loss_falls(tmp_path: Path) -> None:
    rarely = ("training.validate_every=60", "training.save_every=60")
    assert heed("train", write_recipe(tmp_path), "training.steps=60", *rarely, *QUICK, "--run", tmp_path / "run") == 0
    losses = [line["loss"] for line in records(tmp_path / "run", "train")]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_recomputing_activations_changes_no_weight(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    for name, recompute in (("plain", "false"), ("again", "true")):
        assert heed("train", recipe, f"training.recompute={recompute}", "--run", tmp_path / name) == 0
    plain, again = model_of(tmp_path / "plain", 6), model_of(tmp_path / "again", 6)
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_accumulating_equals_one_larger_batch(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    steady = "training.optimizer.epsilon=1e-2"  # with a smaller one, Adam turns rounding errors into full steps
    once = ("model.dropout=0.0", "training.steps=1", "training.save_every=1", steady, *QUICK)
    pairs = (tmp_path / "pairs.tsv").read_text().splitlines()
    (tmp_path / "pairs.tsv").write_text("\n".join([pair for pair in pairs if len(pair.split("\t")[0].split()) == 5]) + "\n")
    assert heed("train", recipe, *once, "data.batch_tokens=600", "--run", tmp_path / "one") == 0
    count = len((tmp_path / "pairs.tsv").read_text().splitlines())
    assert count >= 4
    parts = f"training.accumulate={count}"
    assert heed("train", recipe, *once, "data.batch_tokens=6", parts, "--run", tmp_path / "many") == 0
    one, many = model_of(tmp_path / "one", 1), model_of(tmp_path / "many", 1)
    for name in one:
        torch.testing.assert_close(one[name], many[name], atol=1e-5, rtol=1e-4)


def test_padding_to_a_multiple_stays_within_the_learned_positions(tmp_path: Path) -> None:
    limits = ("data.max_length=8", "model.position=learned", "model.max_positions=9")  # eight tokens and the end
    run = tmp_path / "run"
    assert heed("train", write_recipe(tmp_path), *limits, "data.pad_to_multiple_of=16", "--run", run) == 0
    assert len(records(run, "train")) == 6


def test_ema_is_the_recurrence_of_its_weights(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = ("training.average=ema", "training.ema_decay=0.5", "training.save_every=1", "training.keep_last=10", *QUICK)
    assert heed("train", recipe, *options, "training.steps=4", "--run", run) == 0
    folders = {step: run / "checkpoints" / f"step-{step}" for step in (3, 4)}
    before, weights, after = (
        load_tensors(folders[3], "average"), load_tensors(folders[4], "model"), load_tensors(folders[4], "average"),
    )  # fmt: skip
    assert after.keys() == weights.keys()
    for name in after:
        torch.testing.assert_close(after[name], 5 / 14 * before[name] + 9 / 14 * weights[name])  # decay (1 + 4) / (10 + 4)
    used = load(run).model.state_dict()
    assert all(torch.equal(used[name], load_tensors(retention.resolve(run), "average")[name]) for name in used)


def test_the_last_checkpoints_are_averaged_at_the_end(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = ("training.average=last", "training.average_count=3", *QUICK)
    assert heed("train", recipe, *options, "--run", run) == 0
    names = json.loads((run / "checkpoints" / "average" / "state.json").read_text())["of"]
    assert len(names) == 3
    parts = [load_tensors(run / "checkpoints" / name, "model") for name in names]
    for name, mean in load_tensors(run / "checkpoints" / "average", "model").items():
        torch.testing.assert_close(mean, sum(part[name] for part in parts) / 3)


def test_patience_stops_a_run_without_improvement(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = (
        "training.schedule.learning_rate=1e-12",
        "training.metric=bleu",
        "training.patience=2",
        "training.validate_every=1",
    )
    assert heed("train", recipe, *options, "training.steps=50", "--run", run) == 0
    assert len(records(run, "valid")) == 3  # the best one and two without improvement


def test_init_loads_the_weights_of_another_run(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, *QUICK, "training.steps=3", "--run", tmp_path / "first") == 0
    init = f"training.init={tmp_path / 'first'}"
    still = ("training.steps=1", "training.schedule.learning_rate=1e-30")
    assert heed("train", recipe, *still, init, "--run", tmp_path / "second") == 0
    first = load_tensors(retention.resolve(tmp_path / "first"), "model")
    second = model_of(tmp_path / "second", 1)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("plan", [(), ("--plan",)], ids=str)
@pytest.mark.parametrize(
    ("init", "hint"),
    [("runs/nothing", ""), ("runs/language-gpt1-reviews", "hint: train it with `heed train gpt1-reviews`")],
)
def test_a_missing_init_folder_is_reported_before_any_data_is_read(
    init: str, hint: str, plan: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "pairs.tsv").unlink()
    assert heed("train", recipe, f"training.init={init}", "--run", tmp_path / "second", *plan) == 4
    stderr = capsys.readouterr().err
    assert f"error: training.init: run folder {init} does not exist" in stderr and hint in stderr


def test_init_from_a_model_of_another_shape_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "first") == 0
    init = f"training.init={tmp_path / 'first'}"
    assert heed("train", recipe, "model.dim=32", init, "--run", tmp_path / "second") == 4
    assert "do not fit the model" in capsys.readouterr().err


def test_corpora_are_mixed_by_weight_and_distinguished_by_tags(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    other = write_pairs(tmp_path / "other.tsv", 20)
    tables = f'data.train=[{{tsv="{tmp_path / "pairs.tsv"}", tag="<2a>"}}, {{tsv="{other}", tag="<2b>", weight=3.0}}]'
    text = "\n".join(line for line in recipe.read_text().splitlines() if not line.startswith("train ="))
    recipe.write_text(text)
    assert heed("train", recipe, tables, "training.steps=2", "--run", tmp_path / "run") == 0
    translator = load(tmp_path / "run")
    ids = translator.system.source_tokenizer.encode("<2b> w1 w2")
    assert len(ids) == 3
    assert translator.predict("<2b> w1 w2")


def test_a_failure_of_torch_compile_is_reported_once_and_eager_mode_used() -> None:
    messages: list[str] = []

    def broken(x: int) -> int:
        raise torch._dynamo.exc.InternalTorchDynamoError("no compiler\nhere")

    call = with_fallback(broken, lambda x: x + 1, messages.append)
    assert [call(1), call(2)] == [2, 3]
    assert messages == ["torch.compile failed (no compiler); continuing without it"]


def test_the_guard_halves_the_scale_before_it_counts_a_non_finite_update() -> None:
    guard = NonFiniteGuard(max_nonfinite_steps=1, scale=4.0, scales=True)
    assert [guard.check(step, finite=False) for step in (1, 2)] == [False, False]
    assert guard.scale == 1.0 and guard.bad == []
    assert guard.check(3, finite=False) is False and guard.bad == [3]
    assert guard.check(4, finite=True)


@pytest.mark.parametrize(("step", "rate"), [(1, 1.7469e-7), (100, 1.7469e-5), (4000, 6.9877e-4), (100_000, 1.3975e-4)])
def test_noam_has_the_values_of_the_paper(step: int, rate: float) -> None:
    config = ScheduleConfig(name="noam", warmup=4000)
    assert SCHEDULES["noam"](step, config, 100_000, 512) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_rises_to_its_peak_and_never_above(name: str) -> None:
    config = ScheduleConfig(name=name, warmup=10)  # type: ignore[arg-type]
    rates = [SCHEDULES[name](step, config, 100, 1) for step in range(1, 101)]
    assert rates[:10] == sorted(rates[:10]) and rates[0] > 0
    assert max(rates) == pytest.approx(rates[9])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_the_best_steps_are_ranked_by_the_direction_of_the_metric() -> None:
    train_state = TrainState()
    for step, (value, placed) in enumerate([(3.0, True), (2.0, True), (4.0, False), (1.0, True)], start=1):
        train_state.step = step
        assert train_state.record_validation(value, "lower", keep=2) is placed
    assert train_state.best == [(4, 1.0), (2, 2.0)]
    assert train_state.stale == 0


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_metric_that_is_not_a_number_is_worse_than_every_number(direction: Direction) -> None:
    train_state = TrainState()
    for step, value in enumerate([math.nan, 3.0, math.nan, 3.0], start=1):
        train_state.step = step
        train_state.record_validation(value, direction, keep=3)
    assert [step for step, _ in train_state.best] == [2, 4, 1]
    assert train_state.stale == 2


class StopsLater:
    """Requests to stop after `requested` was read this many times."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def defer(self) -> None: ...

    @property
    def requested(self) -> bool:
        self.patience -= 1
        return self.patience < 0


def test_an_average_does_not_depend_on_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path)
    options = ("training.average=last", "training.average_count=3", "training.validate_every=6", *QUICK)
    assert heed("train", recipe, *options, "--run", tmp_path / "whole") == 0
    for patience in (0, 1, 1):
        monkeypatch.setattr(training, "stop_requests", partial(nullcontext, StopsLater(patience)))
        assert heed("train", recipe, *options, "--run", tmp_path / "stopped") == 75
    monkeypatch.undo()
    assert heed("train", recipe, *options, "--run", tmp_path / "stopped") == 0
    whole, stopped = (load_tensors(tmp_path / run / "checkpoints" / "average", "model") for run in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_the_best_average_is_kept_as_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    losses = iter([3.0, 2.0, 1.0, 2.5, 2.4])  # the third is the first average
    monkeypatch.setattr(TranslationTask, "validate", lambda self, model: loop.Validation({"loss": next(losses)}, {}, []))
    options = ("training.average=last", "training.average_count=2", *QUICK)
    assert heed("train", recipe, *options, "--run", run) == 0
    assert retention.resolve(run).name == "average-6"
    before = load_tensors(retention.resolve(run), "model")
    assert heed("average", run, "--last", "1") == 0
    assert heed("train", recipe, *options, "training.steps=9", "--run", run) == 0
    assert next(losses, None) is None, "it was validated and averaged once more"
    assert retention.resolve(run).name == "average-6"
    after = load_tensors(retention.resolve(run), "model")
    assert all(torch.equal(before[name], after[name]) for name in before)
