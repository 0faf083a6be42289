"""The serving benchmarks lose and mix up no reply without noticing, and run with tiny models."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import serve
import soak
from peers.http_load import Closed, Load, Open, parse, post, run_closed, run_open

pytestmark = pytest.mark.benchmark

Answer = Callable[[str], bytes | None]  # text of a request -> reply; None: the connection is closed


def reply(text: str, status: int = 200, headers: str = "") -> bytes:
    body = json.dumps({"translatedText": text}).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def load_from(answer: Answer, plan: Callable[[int], Closed | Open]) -> Load:
    """What the clients of a plan see of a server that answers after a few milliseconds."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                text = json.loads(await reader.readexactly(length))["q"]
                await asyncio.sleep(0.005)
                found = answer(text)
                if found is None:
                    break
                writer.write(found[:20])  # in two parts
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(found[20:])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        chosen = plan(server.sockets[0].getsockname()[1])
        return await (run_closed(chosen) if isinstance(chosen, Closed) else run_open(chosen))


TEXTS = [f"text {i}" for i in range(7)]
REQUESTS = [post("/translate", {"q": text}) for text in TEXTS]
EXPECTED = [text.upper() for text in TEXTS]


def closed(answer: Answer, **changes: Any) -> Load:
    return asyncio.run(load_from(answer, lambda port: Closed(port, REQUESTS, clients=3, seconds=0.3, patience=0.5, **changes)))


def figures(load: Load) -> dict[str, Any]:
    return serve.summarize([load], EXPECTED, [2] * len(TEXTS))


def test_every_reply_is_compared_with_the_one_expected() -> None:
    found = figures(closed(lambda text: reply(text.upper())))
    assert found["equal"] == found["replies"] == found["requests"] > 30
    assert not found["errors"] and not found["lost"] and not found["different"] and not found["mixed_up"]
    assert 0.004 < found["p50_seconds"] <= found["p99_seconds"] < 0.2
    assert found["target_tokens_per_second"] == pytest.approx(2 * found["requests_per_second"])


def test_mixed_up_replies_errors_and_closed_connections_are_counted() -> None:
    wrong: dict[str, bytes | None] = {
        "text 1": reply("TEXT 2"),  # of another sentence
        "text 3": reply("something else"),
        "text 4": reply("", status=500),
        "text 5": None,
    }
    load = closed(lambda text: wrong[text] if text in wrong else reply(text.upper()))
    found = figures(load)
    different = Counter({text: number for _, text, number in found["different"]})
    assert found["mixed_up"] == different["TEXT 2"] > 0 and different["something else"] > 0
    assert found["errors"] == {"500": load.statuses[500]} and load.statuses[500] > 0
    assert found["lost"] > 0
    assert found["requests"] == found["replies"] + found["lost"]
    assert found["replies"] == found["equal"] + different.total() + load.statuses[500]


def test_a_reply_that_never_comes_is_lost() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def run() -> Load:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await run_closed(Closed(port, REQUESTS, clients=3, seconds=0.1, patience=0.1))

    assert len(asyncio.run(run()).lost) == 3


def test_an_open_loop_keeps_its_rate_and_some_clients_leave() -> None:
    answers = {"text 0": reply("", 429, "Retry-After: 3\r\n"), "text 1": reply("", 429)}
    load = asyncio.run(
        load_from(
            lambda text: answers.get(text, reply(text)), lambda port: Open(port, REQUESTS, rate=200, seconds=0.5, leaving=10)
        )
    )
    assert 80 <= load.sent <= 100 and not load.unsent and not load.lost
    assert load.statuses.total() + load.left == load.sent
    assert len(load.refused) == load.statuses[429] > 0
    assert 0 < load.no_retry_after < load.statuses[429]


def test_clients_that_leave_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.http_load.LEAVES_AFTER", 0.001)
    load = asyncio.run(load_from(reply, lambda port: Open(port, REQUESTS, rate=200, seconds=0.2, leaving=2)))
    assert load.left == pytest.approx(load.sent / 2, abs=2)
    assert load.statuses[200] == load.sent - load.left and not load.lost


def test_parts_of_a_reply_are_no_reply() -> None:
    complete = reply("a text", headers="Retry-After: 7\r\n")
    assert [parse(complete[:end]) for end in range(len(complete))] == [None] * len(complete)
    found = parse(complete)
    assert found is not None and found.retry_after == 7 and json.loads(found.body) == {"translatedText": "a text"}


def test_percentiles_are_values_of_the_list() -> None:
    values = list(map(float, range(100, 0, -1)))
    assert (serve.percentile(values, 0.5), serve.percentile(values, 0.99), serve.percentile([3.0], 0.99)) == (50.0, 99.0, 3.0)


def test_the_slope_is_that_of_a_line() -> None:
    samples = [(float(second), 300 + second / 30) for second in range(100)]
    assert soak.slope(samples) == pytest.approx(2.0)
    found = soak.memory_figures(samples)
    assert found["slope_mb_per_minute"] == pytest.approx(2.0) and found["growth_mb"] == pytest.approx(81 / 30, abs=0.2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve.train_run(serve.PARTS["cpu"], tmp_path_factory.mktemp("serve"), "cpu", tiny=True)


def test_a_tiny_run_on_a_cpu(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    output = tmp_path / "serve.json"
    systems = ["heedful", "one at a time", "ctranslate2", "empty handler"]
    options = ["--clients", "4", "--seconds", "1", "--warm-up", "0.3", "--run", str(run), "--output", str(output)]
    serve.main(["--systems", ",".join(systems), *options])
    found = json.loads(output.read_text())
    assert list(found["systems"]) == systems and found["all_answered"] and found["none_mixed_up"]
    for name, one in found["systems"].items():
        assert one["equal"] == one["replies"] == one["requests"] > 0, name
        assert one["exit_code"] == 0 and one["p50_seconds"] <= one["p99_seconds"]
    assert found["ratios"]["heedful / offline"] > 0


def test_a_tiny_run_of_the_part_gpu(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "serve.json"
    options = ["--clients", "4", "--seconds", "1", "--warm-up", "0.3", "--run", str(run), "--output", str(output)]
    serve.main(["--parts", "gpu", "--device", "cpu", "--systems", "heedful greedy", *options])
    found = json.loads(output.read_text())
    assert found["systems"]["heedful greedy"]["equal"] == found["systems"]["heedful greedy"]["requests"] > 0


def test_a_tiny_soak(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "soak.json"
    options = ["--clients", "4", "--capacity-seconds", "1", "--max-queue", "16", "--run", str(run), "--output", str(output)]
    soak.main(["--minutes", "0.05", *options])
    found = json.loads(output.read_text())
    holds = found["holds"]
    assert holds["refused_with_retry_after"] and holds["no_other_replies"] and holds["deadlines_kept"]
    assert holds["slots_freed"] and holds["sigterm_loses_nothing"]
    assert found["overload"]["answered"] > 0
    assert found["sigterm"]["answered"] > 0
