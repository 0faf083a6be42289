"""The queue and the thread of a model, with a predictor that records its batches."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Queue
from typing import Any

import pytest

from heedful.errors import DataError
from heedful.serving.limits import Limits
from heedful.serving.worker import (
    Cancelled,
    DeadlineExceeded,
    Draining,
    Event,
    Failed,
    Finished,
    QueueFull,
    Request,
    Worker,
)


class Echo:
    """A prediction: the text in capitals."""

    def __init__(self, text: str) -> None:
        self.text = text.upper()


class Recorder:
    """A predictor that records its batches, waits for a permission, and refuses texts with "bad"."""

    decodes = False

    def __init__(self, *, blocked: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.options: list[dict[str, Any]] = []
        self.permission = threading.Event()
        if not blocked:
            self.permission.set()

    @property
    def input_tokenizer(self) -> Recorder:
        return self

    def encode_many(self, texts: Sequence[str]) -> list[list[str]]:
        if any("tokenizer" in text for text in texts):
            raise ZeroDivisionError
        return [text.split() for text in texts]

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Echo]:
        self.batches.append(list(texts))
        self.options.append(options)
        assert self.permission.wait(10)
        for text in self.batches[-1]:
            if "bad" in text:
                raise DataError(f"{text!r} is bad")
            if "bug" in text:
                raise ZeroDivisionError
            yield Echo(text)


Submit = Callable[..., "Asked"]


class Asked:
    """A request, and what its listener was called with."""

    def __init__(self, worker: Worker, texts: Sequence[str], client: str, deadline: float, options: dict[str, Any]) -> None:
        self.events: Queue[Event] = Queue()
        self.request = Request(texts, options, self.events.put, client, deadline)
        worker.submit(self.request)

    def results(self) -> list[str]:
        """The texts of all inputs; an error of the request is raised."""
        found: dict[int, str] = {}
        while len(found) < len(self.request.inputs):
            event = self.events.get(timeout=10)
            if isinstance(event, Failed):
                raise event.error
            assert isinstance(event, Finished)
            found[event.index] = event.prediction.text
        return [found[index] for index in sorted(found)]


def start(predictor: Recorder, **limits: Any) -> tuple[Worker, Submit]:
    worker = Worker(lambda: predictor, Limits(**limits))  # type: ignore[arg-type, return-value]

    def submit(*texts: str, client: str = "", deadline: float = math.inf, **options: Any) -> Asked:
        return Asked(worker, texts, client, deadline, options)

    return worker, submit


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def block(predictor: Recorder, submit: Submit) -> Asked:
    """Submit an input that is computed until the predictor has its permission, so that the next ones wait."""
    first = submit("first", client="first")
    wait_for(lambda: predictor.batches)
    return first


def test_inputs_that_wait_are_computed_together_and_given_to_their_requests() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor)
    first = block(predictor, submit)
    asked = [submit(f"a{i}", f"b{i}") for i in range(3)]
    predictor.permission.set()
    assert [one.results() for one in asked] == [[f"A{i}", f"B{i}"] for i in range(3)]
    assert first.results() == ["FIRST"]
    assert predictor.batches == [["first"], ["a0", "b0", "a1", "b1", "a2", "b2"]]


def test_inputs_with_other_options_are_in_other_batches() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor)
    block(predictor, submit)
    asked = [submit("a", client="1", beam=1), submit("b", client="2", beam=2), submit("c", client="3", beam=1)]
    predictor.permission.set()
    assert [one.results() for one in asked] == [["A"], ["B"], ["C"]]
    assert predictor.batches[1:] == [["a", "c"], ["b"]]
    assert predictor.options[1:] == [{"beam": 1}, {"beam": 2}]


def test_a_batch_has_no_more_tokens_than_allowed() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor, max_batch_tokens=10)
    block(predictor, submit)
    asked = submit(*[f"{i} " + "x" * 14 for i in range(5)])  # 5 tokens each, as estimated
    predictor.permission.set()
    assert len(asked.results()) == 5
    assert [len(batch) for batch in predictor.batches[1:]] == [2, 2, 1]


def test_clients_take_turns() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor, max_batch_tokens=4)
    block(predictor, submit)
    long = submit(*[f"a{i}" for i in range(8)], client="long")
    short = submit("b", client="short")
    predictor.permission.set()
    assert short.results() == ["B"] and len(long.results()) == 8
    assert predictor.batches[1] == ["a0", "b", "a1", "a2"]


@pytest.mark.parametrize("wrong", ["bad", "bug", "bug of the tokenizer"])
def test_a_wrong_input_fails_only_its_own_request(wrong: str) -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor)
    block(predictor, submit)
    before, failing, after = submit("a", "b"), submit("c", wrong), submit("d")
    predictor.permission.set()
    assert before.results() == ["A", "B"] and after.results() == ["D"]
    with pytest.raises((DataError, ZeroDivisionError)):
        failing.results()
    assert submit("e").results() == ["E"]  # the thread goes on


def test_a_full_queue_refuses_with_the_time_that_it_takes() -> None:
    predictor = Recorder(blocked=True)
    worker, submit = start(predictor, max_queue=4)
    block(predictor, submit)
    accepted = [submit("a", "b", client="1"), submit("c", "d", client="2")]
    worker.finished.extend([time.monotonic() - 3.5, time.monotonic() - 1])  # two inputs take 3.5 seconds
    with pytest.raises(QueueFull) as refused:
        submit("e", client="3")
    assert refused.value.retry_after == 4
    predictor.permission.set()
    assert [one.results() for one in accepted] == [["A", "B"], ["C", "D"]]
    assert submit("e", client="3").results() == ["E"]


def test_an_input_that_would_be_computed_after_its_deadline_is_refused() -> None:
    predictor = Recorder(blocked=True)
    worker, submit = start(predictor, max_queue=1000)
    block(predictor, submit)
    now = time.monotonic()
    worker.finished.extend([now - 10 + at / 10 for at in range(100)])  # ten inputs per second
    first = submit(*("a" * 70), client="1", deadline=now + 20)  # seven of at most eight seconds
    with pytest.raises(QueueFull):
        submit(*("b" * 20), client="1", deadline=now + 20)
    other = submit(*("c" * 35), client="2", deadline=now + 20)  # clients take turns: seven seconds
    with pytest.raises(QueueFull):
        submit(*("d" * 35), client="3", deadline=now + 20)
    predictor.permission.set()
    assert first.results() == ["A"] * 70 and other.results() == ["C"] * 35


def test_one_client_fills_at_most_half_of_the_queue() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor, max_queue=4)
    block(predictor, submit)
    submit("a", "b", client="1")
    with pytest.raises(QueueFull):
        submit("c", client="1")
    assert submit("c", client="2")
    predictor.permission.set()


def test_a_cancelled_request_is_not_computed_and_frees_its_place() -> None:
    predictor = Recorder(blocked=True)
    worker, submit = start(predictor, max_queue=4)
    block(predictor, submit)
    left = submit("a", "b", client="1")
    worker.cancel(left.request.id)
    with pytest.raises(Cancelled):
        left.results()
    kept = submit("c", "d", client="1")
    predictor.permission.set()
    assert kept.results() == ["C", "D"]
    assert predictor.batches == [["first"], ["c", "d"]]


def test_a_request_past_its_deadline_is_not_computed() -> None:
    predictor = Recorder(blocked=True)
    _, submit = start(predictor)
    block(predictor, submit)
    late, other = submit("a", deadline=time.monotonic()), submit("b")
    predictor.permission.set()
    assert other.results() == ["B"]
    with pytest.raises(DeadlineExceeded):
        late.results()
    assert predictor.batches == [["first"], ["b"]]


def test_draining_finishes_what_was_accepted_and_accepts_nothing_more() -> None:
    predictor = Recorder(blocked=True)
    worker, submit = start(predictor)
    first, second = block(predictor, submit), submit("a")
    assert not worker.drain(0.01)
    with pytest.raises(Draining):
        submit("b")
    predictor.permission.set()
    assert worker.drain(10)
    assert first.results() == ["FIRST"] and second.results() == ["A"]
    worker.thread.join(10)
    assert not worker.thread.is_alive()


def test_metrics_count_tokens_and_what_waits() -> None:
    predictor = Recorder(blocked=True)
    worker, submit = start(predictor)
    block(predictor, submit)
    waiting = submit("a b c", "d")
    values = worker.metrics.registry.get_sample_value
    assert values("heedful_queue_depth") == 2
    predictor.permission.set()
    waiting.results()
    assert worker.drain(10)
    assert values("heedful_queue_depth") == 0
    assert values("heedful_tokens_total", {"dir": "in"}) == 5
    assert values("heedful_batch_tokens_sum") == 5
    assert values("heedful_padding_ratio_sum") == pytest.approx(1 - 4 / 6)
