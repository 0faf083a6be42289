"""samples.jsonl: the outputs of each validation, bounded in size; writing them changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import heed, write_recipe

import heedful
from heedful.training import loop
from heedful.training.metrics_log import read_metrics
from heedful.training.samples_log import DENSE, MAX_CHARACTERS, MAX_SAMPLES, Sample, append_samples, is_logged


def test_samples_are_the_outputs_of_the_model_at_each_validation(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert heed("train", write_recipe(tmp_path), "training.steps=6", "training.validate_every=2", "--run", run) == 0
    records = read_metrics(run / "samples.jsonl")
    assert [record["step"] for record in records] == [2, 4, 6]
    translator = heedful.Translator.load(run, "last")
    last = records[-1]["samples"]
    assert 0 < len(last) <= MAX_SAMPLES and all(sample["reference"] for sample in last)
    assert translator.translate([sample["source"] for sample in last]) == [sample["output"] for sample in last]


def test_samples_change_neither_weights_nor_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path)
    options = ("training.steps=4", "training.validate_every=2")
    assert heed("train", recipe, *options, "--run", tmp_path / "with") == 0
    monkeypatch.setattr(loop, "append_samples", lambda *_: None)
    assert heed("train", recipe, *options, "--run", tmp_path / "without") == 0
    assert not (tmp_path / "without" / "samples.jsonl").exists()
    weights = [tmp_path / name / "checkpoints" / "step-4" / "model.safetensors" for name in ("with", "without")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    times = {"tokens_per_second", "seconds", "time"}
    records = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("with", "without")]
    plain = [[{key: value for key, value in one.items() if key not in times} for one in part] for part in records]
    assert plain[0] == plain[1] and plain[0]


def test_a_record_has_few_short_samples(tmp_path: Path) -> None:
    append_samples(tmp_path / "samples.jsonl", 1, [Sample("a" * 10_000, None, "b\n\u2028")] * 100)
    (record,) = read_metrics(tmp_path / "samples.jsonl")
    assert len(record["samples"]) == MAX_SAMPLES
    assert record["samples"][0] == {"source": "a" * (MAX_CHARACTERS - 1) + "…", "reference": None, "output": "b\n\u2028"}


def test_a_long_run_logs_a_bounded_number_of_validations() -> None:
    logged = [step for step in range(50, 50 * 100_000, 50) if is_logged(step, 50)]
    assert logged[:DENSE] == [50 * number for number in range(1, DENSE + 1)]
    assert len(logged) < 6.5 * DENSE
    assert max(after / before for before, after in zip(logged[DENSE:], logged[DENSE + 1 :], strict=False)) < 1.02
