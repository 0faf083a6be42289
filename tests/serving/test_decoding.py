"""The worker of a model that decodes: inputs of many requests share a batch that they join and leave at any step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import heedful
from heedful.errors import HeedfulError
from heedful.serving.limits import Limits
from heedful.serving.worker import Cancelled, DeadlineExceeded, Delta, Event, Failed, Request, Worker
from heedful.tasks.continuous_batching import ContinuousBatch
from heedful.tasks.predictor import Predictor


class Asked:
    """A request and the events that its listener received."""

    def __init__(self, worker: Worker, texts: list[str], options: dict[str, Any], **request: Any) -> None:
        self.events: Queue[Event] = Queue()
        self.texts, self.deltas = texts, dict.fromkeys(range(len(texts)), "")
        self.request = Request(texts, options, self.events.put, **request)
        worker.submit(self.request)

    def results(self) -> list[Any]:
        found: dict[int, Any] = {}
        while len(found) < len(self.texts):
            event = self.events.get(timeout=20)
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Delta):
                assert event.index not in found
                self.deltas[event.index] += event.text
            else:
                found[event.index] = event.prediction
        assert self.events.empty()
        return [found[at] for at in range(len(self.texts))]


@pytest.fixture(params=["translation", "chat", "language"])
def predictor(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Predictor:
    return heedful.load(tiny_runs[request.param])


@pytest.fixture
def worker(predictor: Predictor) -> Iterator[Worker]:
    worker = Worker(lambda: predictor, Limits(max_running=4))
    yield worker
    assert worker.drain(20)
    worker.thread.join(20)
    assert not worker.thread.is_alive()


def options_of(predictor: Predictor, **options: Any) -> dict[str, Any]:
    return options | ({"length": 12} if predictor.run.task.name == "language" else {})


def test_requests_at_once_get_what_predictions_gives(worker: Worker, predictor: Predictor) -> None:
    """More requests than fit into the batch, with other options in each."""
    texts = [["the cat", "a dog"], [""], ["the dog sees", "a", "the cat sees a dog"], ["dog"]]
    searches: list[dict[str, Any]] = [{"method": "greedy"}, {"beam": 2}, {"method": "sample", "temperature": 0.5, "seed": 3}]
    asked = [
        Asked(worker, one, options_of(predictor, **searches[at % 3]), client=str(at % 2))
        for at, one in enumerate([*texts, *texts])
    ]
    for one in asked:
        expected = list(predictor.predictions(one.texts, **one.request.options))
        assert [found.text for found in one.results()] == [prediction.text for prediction in expected]


def test_streamed_parts_are_the_text(worker: Worker, predictor: Predictor) -> None:
    asked = [Asked(worker, ["the cat", "a"], options_of(predictor, method="greedy"), stream=True) for _ in range(3)]
    for one in asked:
        for at, prediction in enumerate(one.results()):
            text = prediction.completions[0].text if hasattr(prediction, "completions") else prediction.text
            assert one.deltas[at] == text


def test_wrong_options_fail_their_own_request(worker: Worker, predictor: Predictor) -> None:
    right = Asked(worker, ["the"], options_of(predictor, method="greedy"))
    wrong = Asked(worker, ["the"], {"beam": 0})
    assert right.results()
    with pytest.raises(HeedfulError):
        wrong.results()
    assert Asked(worker, ["the"], options_of(predictor)).results()


class Slow:
    """Steps that take their time, so that a request can be ended between two of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps, step = 0, ContinuousBatch.step

        def slow(batch: ContinuousBatch) -> Any:
            self.steps += 1
            time.sleep(0.01)
            return step(batch)

        monkeypatch.setattr(ContinuousBatch, "step", slow)

    def wait(self) -> None:
        now, until = self.steps, time.monotonic() + 10
        while self.steps < now + 2:
            assert time.monotonic() < until
            time.sleep(0.001)


def test_a_client_that_leaves_and_a_deadline_end_the_decoding(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    worker = Worker(lambda: heedful.load(tiny_runs["language"]), Limits(max_running=2))
    options = {"method": "greedy", "length": 500}  # five seconds
    left = Asked(worker, ["the"], options)
    late = Asked(worker, ["a"], options, deadline=time.monotonic() + 0.2)
    slow.wait()
    worker.cancel(left.request.id)
    with pytest.raises(Cancelled):
        left.results()
    with pytest.raises(DeadlineExceeded):
        late.results()
    assert Asked(worker, ["the"], options | {"length": 2}).results()  # both places are free
    assert slow.steps < 200
    assert worker.drain(20)


def test_a_long_text_does_not_hold_up_a_short_one(tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    worker = Worker(lambda: heedful.load(tiny_runs["language"]), Limits())
    long = Asked(worker, ["the"], {"method": "greedy", "length": 300})
    slow.wait()
    before = slow.steps
    assert Asked(worker, ["a"], {"method": "greedy", "length": 3}).results()
    assert slow.steps - before < 40
    assert long.events.empty()
    worker.cancel(long.request.id)
    assert worker.drain(20)


def test_an_error_of_the_batch_ends_its_requests_and_not_the_worker(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, step = Worker(lambda: heedful.load(tiny_runs["language"]), Limits()), ContinuousBatch.step

    def fail(batch: ContinuousBatch) -> Any:
        raise MemoryError

    monkeypatch.setattr(ContinuousBatch, "step", fail)
    with pytest.raises(MemoryError):
        Asked(worker, ["the"], {"length": 3}).results()
    monkeypatch.setattr(ContinuousBatch, "step", step)
    assert Asked(worker, ["the"], {"length": 3}).results()
    assert worker.drain(20)
