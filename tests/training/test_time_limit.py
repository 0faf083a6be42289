"""A time limit holds at any speed of the machine, and the learning rate decays in time: with a fake clock."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from workshop import heed, write_recipe

from heedful.runs.config import read_run
from heedful.runs.plan import advise
from heedful.runs.recipes import all_recipes
from heedful.runs.train import train_config
from heedful.tasks.translation.task import TranslationTask
from heedful.training import loop
from heedful.training.config import TrainingConfig
from heedful.training.loop import Outcome
from heedful.training.schedules import SCHEDULES, ScheduleConfig, advance
from heedful.training.time_limit import OVERTIME, Pace, Stopwatch
from heedful.training.train_state import TrainState

Duration = Callable[[float], float]  # start time -> duration


class FakeClock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Simulation:
    """The decisions of the training loop, without a model."""

    def __init__(self, config: TrainingConfig, update: Duration, validation: Duration = lambda _: 1.0) -> None:
        self.config, self.update, self.validation = config, update, validation
        self.clock = FakeClock()
        self.watch = Stopwatch(0.0, self.clock)
        self.pace = Pace(config, self.clock)
        self.train_state = TrainState()
        self.rates: list[float] = []

    def run(self, until: float = float("inf")) -> None:
        config, train_state, pace, limit = self.config, self.train_state, self.pace, 60 * self.config.minutes
        train_state.last = train_state.last or config.steps
        while train_state.step < train_state.last and self.clock.now < until:
            began, fits = self.clock(), pace.updates_left(self.watch.seconds())
            train_state.position = advance(train_state.position, train_state.step, config.schedule, config.steps, fits)
            self.rates.append(SCHEDULES[config.schedule.name](train_state.position, config.schedule, config.steps, 512))
            self.clock.now += self.update(self.clock.now)
            train_state.step += 1
            pace.record_update(began, lambda: None)
            train_state.plan(config.steps, limit, pace.updates_left(self.watch.seconds()))
            last = train_state.step == train_state.last
            if last or train_state.step % config.validate_every == 0 or pace.must_measure_validation(self.watch.seconds()):
                self.validate()
                if not last:
                    train_state.plan(config.steps, limit, pace.updates_left(self.watch.seconds()))
        if self.clock.now < until and config.average == "last" and pace.allows_average(self.watch.seconds()):
            self.validate()

    def validate(self) -> None:
        began = self.clock()
        self.clock.now += self.validation(began)
        self.pace.validation = self.clock() - began


def timed(minutes: float = 3.0, **options: Any) -> TrainingConfig:
    schedule = ScheduleConfig(name="cosine", learning_rate=1.0, warmup=300)
    chosen: dict[str, Any] = {"steps": 20_000, "minutes": minutes, "schedule": schedule} | options
    return TrainingConfig(**chosen)


PACES: dict[str, Duration] = {
    "constant": lambda now: 0.3,
    "half as fast after a minute": lambda now: 0.3 if now < 60 else 0.6,
    "twice as fast after a minute": lambda now: 0.6 if now < 60 else 0.3,
    "five times slower near the end": lambda now: 0.3 if now < 150 else 1.5,
    "a slow start": lambda now: 9.0 if now < 9 else 0.3,
    "a pause": lambda now: 25.0 if 90 <= now < 91 else 0.3,
    "very fast": lambda now: 0.02,
}
VALIDATIONS: dict[str, Duration] = {"quick": lambda now: 0.5, "slow": lambda now: 20.0, "slower": lambda now: 10 + now / 9}


@pytest.mark.parametrize("validation", VALIDATIONS.values(), ids=VALIDATIONS)
@pytest.mark.parametrize("update", PACES.values(), ids=PACES)
@pytest.mark.parametrize("average", ["none", "last"])
def test_a_run_ends_in_time_past_its_warmup_and_decayed(update: Duration, validation: Duration, average: str) -> None:
    simulated = Simulation(timed(average=average, keep_last=5), update, validation)
    simulated.run()
    assert 0.75 * 180 <= simulated.clock.now <= OVERTIME * 180
    assert max(simulated.rates) == pytest.approx(1.0, abs=0.01), "the peak was reached"
    assert simulated.rates[-1] <= 0.05


@pytest.mark.parametrize("update", PACES.values(), ids=PACES)
def test_the_learning_rate_is_smooth_when_the_speed_changes(update: Duration) -> None:
    simulated = Simulation(timed(), update)
    simulated.run()
    peak = simulated.rates.index(max(simulated.rates))
    assert simulated.rates[: peak + 1] == sorted(simulated.rates[: peak + 1])
    assert simulated.rates[peak:] == sorted(simulated.rates[peak:], reverse=True)
    assert peak <= 0.25 * len(simulated.rates)
    moves = [abs(one - other) for one, other in itertools.pairwise(simulated.rates)]
    assert max(moves) <= 0.1


def test_a_resumed_run_keeps_its_time_limit_and_learning_rate() -> None:
    simulated = Simulation(timed(), PACES["constant"])
    simulated.run(until=100.0)
    before = simulated.rates[-1]
    simulated.watch.earlier, simulated.watch.began = simulated.watch.seconds(), simulated.clock.now
    validation = simulated.pace.validation
    simulated.pace = Pace(simulated.config, simulated.clock)
    simulated.pace.validation = validation
    simulated.clock.now += 15  # preparation of the second session
    simulated.train_state.resume(20_000, 180.0)
    at = len(simulated.rates)
    simulated.run()
    assert simulated.watch.seconds() <= OVERTIME * 180
    assert simulated.rates[at] == pytest.approx(before, abs=0.02) and simulated.rates[-1] <= 0.05


@settings(max_examples=40)
@given(
    pace=st.floats(0.05, 3.0),
    change=st.floats(0.3, 3.0),
    moment=st.floats(0.0, 180.0),
    validation=st.floats(0.1, 25.0),
    warmup=st.integers(0, 4000),
)
def test_the_limit_holds_for_any_speed(pace: float, change: float, moment: float, validation: float, warmup: int) -> None:
    schedule = ScheduleConfig(name="linear", learning_rate=1.0, warmup=warmup)
    config = timed(schedule=schedule)
    simulated = Simulation(config, lambda now: pace if now < moment else pace * change, lambda _: validation)
    simulated.run()
    assert simulated.clock.now <= OVERTIME * 180
    assert max(simulated.rates) >= 0.9 and simulated.rates[-1] <= 0.2


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("warmup", "steps"), [(0, 20), (7, 20), (19, 20), (4000, 20)])
def test_without_a_limit_the_schedule_is_a_function_of_the_step(name: str, warmup: int, steps: int) -> None:
    config = ScheduleConfig(name=name, warmup=warmup)  # type: ignore[arg-type]
    position = 0.0
    for step in range(steps):
        position = advance(position, step, config, steps, float("inf"))
        assert position == step + 1


@pytest.mark.parametrize(("minute", "over"), [(58.0, True), (62.0, True), (120.0, False), (0.0, False)])
def test_a_finished_run_continues_only_with_considerably_more_time(minute: float, over: bool) -> None:
    train_state = TrainState(step=10, seconds=60.0, last=10, position=90.0)
    assert train_state.is_over(90, minute) is over
    train_state.resume(90, minute)
    assert not train_state.last
    if minute:
        assert train_state.position == pytest.approx(min(90.0, 90 * 60 / minute))
    else:
        assert train_state.position == 10.0


class Workplace:
    """A tiny run whose updates take four seconds of a fake clock, and whose validations take three."""

    update_seconds = 4.0

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recipe, self.run = write_recipe(folder), folder / "run"
        self.clock = FakeClock()
        whole = TranslationTask.loss

        def loss(task: TranslationTask, model: Any, batch: Any) -> Any:
            self.clock.now += self.update_seconds
            return whole(task, model, batch)

        def validate(task: TranslationTask, model: Any) -> loop.Validation:
            self.clock.now += 3.0
            return loop.Validation({"loss": 1.0}, {}, [])

        monkeypatch.setattr(TranslationTask, "loss", loss)
        monkeypatch.setattr(TranslationTask, "validate", validate)

    def train(self, *overrides: str, recipe: Path | None = None) -> Outcome:
        falling = ("training.schedule.name=linear", "training.schedule.learning_rate=1e-2", "training.schedule.warmup=400")
        rare = ("training.steps=1000", "training.validate_every=1000", "training.save_every=1000")
        options = dict(text.split("=", 1) for text in (*falling, *rare, *overrides))
        config = read_run(self.recipe, [f"{name}={value}" for name, value in options.items()]).config
        return train_config(config, self.run, recipe=recipe, device="cpu", watch=Stopwatch(self.clock.now, self.clock))

    def records(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]


def test_minutes_end_a_run_and_more_minutes_continue_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Workplace(tmp_path, monkeypatch)
    outcome = work.train("training.minutes=2")
    assert 100 <= work.clock.now <= 132 and outcome.seconds == work.clock.now
    trained = work.records("train")
    rates = [line["rate"] for line in trained]
    assert max(rates) == pytest.approx(1e-2, rel=0.05) and rates[-1] < 1e-3
    assert [line["seconds"] for line in trained[:3]] == [4.0, 8.0, 12.0]
    assert all(line["time"] > 1.7e9 for line in trained)
    assert len(work.records("valid")) == 2, "one to learn how long it takes, one at the end"
    assert f"minutes reached after {outcome.step} steps\n" in capsys.readouterr().err
    assert work.train("training.minutes=2").already_done
    assert f"{outcome.step} steps; training.minutes=2 have passed" in capsys.readouterr().err
    more = work.train("training.minutes=4")
    assert more.step > outcome.step + 15 and 200 <= more.seconds <= 264
    continued = [line["seconds"] for line in work.records("train")]
    assert continued == sorted(continued), "the time of both sessions is counted"


def test_one_minute_is_singular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Workplace(tmp_path, monkeypatch).train("training.minutes=1")
    shown = capsys.readouterr().err
    assert "training 1 minute, preparation included" in shown and "time limit of 1 minute reached" in shown


def test_preparation_counts_towards_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Workplace(tmp_path, monkeypatch)
    config = read_run(work.recipe, ["training.minutes=2", "training.steps=1000", "training.validate_every=1000"]).config
    watch = Stopwatch(-60.0, work.clock)
    outcome = train_config(config, work.run, watch=watch)
    assert watch.seconds() <= 132 and outcome.step < 16


def warnings_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning:")]


@pytest.mark.parametrize(
    ("recipe", "advice"),
    [
        ("multi30k-en-de", "recipe multi30k-en-de-cpu is for a CPU: heed train multi30k-en-de-cpu"),
        ("shakespeare-char", "recipe shakespeare-char-cpu is for a CPU: heed train shakespeare-char-cpu"),
        ("wikitext2", "use a GPU, fewer steps (training.steps) or a time limit (training.minutes=60)"),
    ],
)
def test_a_long_run_on_a_cpu_is_announced_once_with_advice(
    recipe: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Workplace(tmp_path, monkeypatch)
    work.update_seconds = 1760.0
    work.train("training.steps=8", "training.save_every=5", recipe=all_recipes()[recipe])
    assert warnings_of(capsys) == [f"warning: this run will take about 2.4 h; {advice}"]  # after three updates
    work.train("training.steps=12", recipe=all_recipes()[recipe])
    assert warnings_of(capsys) == [], "a resumed run was announced when it was started"


@pytest.mark.parametrize("overrides", [("training.steps=8",), ("training.minutes=100", "training.steps=30")], ids=str)
def test_a_short_run_and_a_time_limit_are_not_announced(
    overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Workplace(tmp_path, monkeypatch)
    work.update_seconds = 400.0
    work.train(*overrides)
    assert warnings_of(capsys) == []


def test_only_a_cpu_is_advised(tmp_path: Path) -> None:
    config = read_run(write_recipe(tmp_path)).config
    assert [bool(advise(config, torch.device(name), None)) for name in ("cpu", "cuda", "mps")] == [True, False, False]


def test_a_plan_of_more_than_an_hour_ends_with_the_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    for steps, count in ((6, 0), (10_000_000, 1)):
        assert heed("train", recipe, f"training.steps={steps}", "--plan", "--json", "--device", "cpu") == 0
        assert len(warnings_of(capsys)) == count
