"""A model in a process of its own answers as a worker does, and is started again when it ends."""

from __future__ import annotations

import asyncio
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving.running_server import run_server

import heedful
from heedful.errors import CheckpointError, ConfigError, DataError, HeedfulError, MissingFile
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_process import ModelFailure, ModelProcess, Observed, join_observed, portable
from heedful.serving.served import Loading, open_model
from heedful.serving.worker import Delta, Draining, Event, Failed, Finished, ModelEnded, QueueFull, Request

TEXTS = ["w1 w2 w3", "w4 w5", "w2 w1"]
GREEDY = {"method": "greedy"}


async def events_of(model: ModelProcess, texts: list[str], options: dict[str, Any], *, stream: bool = False) -> list[Event]:
    """All events of a request; an error is the last one."""
    reported: asyncio.Queue[Event] = asyncio.Queue()
    model.submit(Request(texts, options, reported.put_nowait, deadline=time.monotonic() + 30, stream=stream))
    events: list[Event] = []
    while sum(isinstance(event, Finished) for event in events) < len(texts):
        events.append(await asyncio.wait_for(reported.get(), 30))
        if isinstance(events[-1], Failed):
            break
    return events


def test_a_process_answers_fails_ends_and_is_started_again(tiny_runs: dict[str, Path]) -> None:
    run, metrics = tiny_runs["translation"], Metrics()
    loading = Loading(device="cpu", search=["beam=3"])
    model = ModelProcess(partial(open_model, run, loading), Limits(max_queue=8), metrics)
    predictor = heedful.load(run, device="cpu")
    expected = [one.text for one in predictor.predictions(TEXTS, **GREEDY)]
    alone = model.predict_alone(Request([TEXTS[0]], GREEDY))
    assert isinstance(alone, Finished) and alone.prediction.text == expected[0]

    async def use() -> None:
        await model.attach()
        found = {one.index: one.prediction for one in await events_of(model, TEXTS, GREEDY) if isinstance(one, Finished)}
        assert [found[index].text for index in range(3)] == expected
        streamed = await events_of(model, TEXTS[:1], GREEDY, stream=True)
        assert "".join(one.text for one in streamed if isinstance(one, Delta)) == expected[0]
        default = (await events_of(model, TEXTS[:1], {}))[-1]
        assert isinstance(default, Finished)
        assert default.prediction.text == next(iter(predictor.predictions(TEXTS[:1], beam=3))).text
        errors = [(await events_of(model, texts, options))[-1] for texts, options in ((TEXTS, {"beam": 0}), (["w1"] * 9, {}))]
        assert [type(one.error) for one in errors if isinstance(one, Failed)] == [ConfigError, QueueFull]
        counted = metrics.registry.get_sample_value("heedful_tokens_total", {"dir": "in"})
        assert counted is not None and counted >= sum(len(text.split()) for text in TEXTS)
        assert metrics.registry.get_sample_value("heedful_queue_depth") == 0

        reported: asyncio.Queue[Event] = asyncio.Queue()
        model.submit(Request(TEXTS, GREEDY, reported.put_nowait))
        model.process.kill()
        event = await asyncio.wait_for(reported.get(), 10)
        assert isinstance(event, Failed) and isinstance(event.error, ModelEnded)
        with pytest.raises(ModelEnded):
            model.submit(Request(TEXTS, GREEDY))
        await asyncio.wait_for(model.restarting, 60)
        assert len(await events_of(model, TEXTS, GREEDY)) == 3
        assert await asyncio.to_thread(model.drain, 10)
        with pytest.raises(Draining):
            model.submit(Request(TEXTS, GREEDY))

    asyncio.run(use())
    model.process.join(10)
    assert model.process.exitcode is not None


def test_an_error_of_loading_is_raised_in_the_front(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        ModelProcess(partial(open_model, tmp_path / "none", Loading(device="cpu")), Limits(), Metrics())


def test_a_server_with_model_processes_answers_and_drains(tiny_runs: dict[str, Path]) -> None:
    with run_server(f"{tiny_runs['translation']}=en-de", "--model-process") as running:
        fields = {"q": TEXTS[0], "source": "en", "target": "de"}
        expected = heedful.load(tiny_runs["translation"]).predict(TEXTS[0])
        assert running.http.post("/translate", json=fields).json() == {"translatedText": expected}
        assert running.http.get("/readyz").status_code == 200
        assert 'heedful_tokens_total{dir="out"}' in running.http.get("/metrics").text
        assert running.stop()[0] == 0


@pytest.mark.parametrize(
    "error", [MissingFile("there is no a.txt", Path("a.txt"), "look"), DataError("bad", "hint"), QueueFull(7), ModelEnded()]
)
def test_errors_keep_their_content_on_their_way(error: Exception) -> None:
    arrived = pickle.loads(pickle.dumps(portable(error)))
    assert type(arrived) is type(error) and str(arrived) == str(error) and arrived.__dict__ == error.__dict__


def test_an_error_that_cannot_be_sent_is_replaced() -> None:
    class Local(HeedfulError):
        """Not known to other processes."""

    assert type(portable(Local("what happened"))) is HeedfulError
    assert str(portable(ValueError("a text of the request"))) == "ValueError"
    assert type(portable(ValueError())) is ModelFailure


def test_calls_of_a_metric_are_sent_together() -> None:
    calls = [Observed("running", "inc", (), [2]), (1, "event"), Observed("running", "inc", (), [-1])]
    calls += [Observed("padding", "observe", (), [0.1]), Observed("padding", "observe", (), [0.3])]
    assert join_observed(calls) == [
        (1, "event"),
        Observed("running", "inc", (), [1]),
        Observed("padding", "observe", (), [0.1, 0.3]),
    ]
