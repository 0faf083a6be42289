"""Continuous batching: what a job returns does not depend on what else is in the batch, nor on when it joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.errors import CheckpointError
from heedful.search import SearchConfig
from heedful.search.engine import Engine
from heedful.tasks.continuous_batching import ContinuousBatch, Job, engine_config, next_size
from heedful.tasks.predictor import Predictor

TASKS = ("translation", "chat", "language")
TEXTS = ["the cat", "a dog sees the cat", "", "the dog", "a cat sees a dog and the cat sees a dog", "the", "dog"]
METHODS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"beam": 3},
    {"method": "sample", "temperature": 0.7, "top_k": 5, "seed": 3},
    {"method": "sample", "temperature": 1.3, "seed": 4, "n_best": 2},
]


def options_of(task: str, search: dict[str, Any], at: int = 0) -> dict[str, Any]:
    return search | ({"length": 4 + 3 * at} if task == "language" else {})


def run(batch: ContinuousBatch, jobs: list[Job], waves: list[int]) -> None:
    """Submit the jobs in waves of these sizes, a step after each, and decode to the end."""
    left = list(jobs)
    for wave in [*waves, len(jobs)]:
        for job in left[:wave]:
            batch.submit(job)
        left = left[wave:]
        if batch.busy:
            batch.step()
    for _ in range(500):
        if not batch.busy:
            return
        batch.step()
        assert not batch.failures
    raise AssertionError("the batch is still busy")


@pytest.fixture(params=TASKS)
def predictor(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Predictor:
    return heedful.load(tiny_runs[request.param])


def alone(predictor: Predictor, task: str, search: dict[str, Any]) -> list[Any]:
    found = []
    for at, text in enumerate(TEXTS):
        job = predictor.job(text, **options_of(task, search, at))
        assert job is not None
        run(ContinuousBatch(predictor.decoder(), capacity=1), [job], [])
        found.append(job.prediction().to_dict())
    return found


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("search", METHODS, ids=str)
def test_a_job_does_not_depend_on_its_batch(
    predictor: Predictor, search: dict[str, Any], captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that join late, wait for a place, or share an engine with others; captured: with the tensors of a CUDA graph."""
    task = predictor.run.task.name
    expected = alone(predictor, task, search)
    if captured:
        monkeypatch.setattr(Engine, "step", Engine.compute_step)
        monkeypatch.setattr("heedful.tasks.decoding.Decoder.captures", True)
    for capacity, waves in ((3, [1, 2]), (8, [2, 0, 0, 3]), (8, [len(TEXTS)])):
        batch = ContinuousBatch(predictor.decoder(), capacity=capacity)
        jobs = [predictor.job(text, **options_of(task, search, at)) for at, text in enumerate(TEXTS)]
        run(batch, [job for job in jobs if job is not None], waves)
        found = [job.prediction().to_dict() for job in jobs if job is not None]
        assert close(found, expected)
        assert not batch.running and not batch.left


def close(found: Any, expected: Any) -> bool:
    """Equal, up to the rounding of scores."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(close, found, expected))
    return bool(found == pytest.approx(expected, abs=1e-4)) if isinstance(expected, float) else bool(found == expected)


def test_a_job_gives_what_predictions_gives(predictor: Predictor) -> None:
    task = predictor.run.task.name
    for search in METHODS[:3]:
        options = options_of(task, search)
        job = predictor.job(TEXTS[1], **options)
        assert job is not None
        run(ContinuousBatch(predictor.decoder()), [job], [])
        (prediction,) = predictor.predictions([TEXTS[1]], **options)
        assert close(job.prediction().to_dict(), prediction.to_dict())


def test_cancelled_jobs_leave_the_batch_and_change_no_other(predictor: Predictor) -> None:
    task = predictor.run.task.name
    expected = alone(predictor, task, METHODS[0])
    batch = ContinuousBatch(predictor.decoder(), capacity=4)
    jobs = [predictor.job(text, **options_of(task, METHODS[0], at)) for at, text in enumerate(TEXTS)]
    kept = [job for job in jobs if job is not None]
    for job in kept:
        batch.submit(job)
    batch.step()
    for at in (1, 4, 6):  # running ones and a waiting one
        batch.cancel(kept[at])
    assert all(running.job not in (kept[1], kept[4], kept[6]) for running in batch.running.values())
    run(batch, [], [])
    for at in (0, 2, 3, 5):
        assert close(kept[at].prediction().to_dict(), expected[at])


def test_streamed_parts_join_to_the_text(predictor: Predictor) -> None:
    task = predictor.run.task.name
    for search in ({"method": "greedy"}, {"method": "sample", "seed": 1}, {"beam": 2}):
        job = predictor.job(TEXTS[1], stream=True, **options_of(task, search, 3))
        assert job is not None
        batch, parts = ContinuousBatch(predictor.decoder()), []
        batch.submit(job)
        while batch.busy:
            batch.step()
            parts.append(job.new_text(0))
        prediction = job.prediction()
        text = prediction.completions[0].text if task == "language" else prediction.text
        assert "".join(parts) == text
        assert "beam" in search or task != "language" or sum(map(bool, parts)) > 1


def test_nonfinite_scores_fail_one_job_and_not_the_batch(tiny_runs: dict[str, Path]) -> None:
    predictor = heedful.load(tiny_runs["language"])
    jobs = [predictor.job(text, length=3, method="greedy") for text in ("the", "the cat")]
    batch = ContinuousBatch(predictor.decoder())
    with torch.no_grad():
        next(iter(predictor.model.parameters())).fill_(float("nan"))
    for job in jobs:
        assert job is not None
        batch.submit(job)
    while batch.busy:
        assert batch.step() == []
    assert [job for job, _ in batch.failures] == jobs
    assert all(isinstance(error, CheckpointError) for _, error in batch.failures)


def test_pieces_of_one_engine_differ_in_sampling_only() -> None:
    base = SearchConfig(method="sample", temperature=0.5, seed=3)
    assert engine_config(base) == engine_config(SearchConfig(method="sample", temperature=2.0, max_length=9))
    assert engine_config(base) != engine_config(SearchConfig(method="sample", top_k=4))  # truncation sorts the tokens
    assert engine_config(base) != engine_config(SearchConfig(method="sample", n_best=2))
    assert engine_config(SearchConfig(beam=3)) != engine_config(SearchConfig(beam=4))
    assert [next_size(number) for number in (1, 32, 33, 64, 1000)] == [32, 32, 64, 64, 1024]
