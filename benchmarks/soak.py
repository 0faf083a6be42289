"""A server under ten times the load that it can serve: replies 429, deadlines, memory, clients that leave, SIGTERM.

    python benchmarks/soak.py --minutes 10 --output benchmarks/results/soak.json

The steps, on the loopback interface, with the model of `serve.py --parts cpu`:

capacity    64 clients, each of which waits for its reply: requests per second
overload    requests at ten times that rate; every twentieth client leaves after 0.1 s, without its reply
capacity    again, after the queue is empty: slots that were not freed would be missing
SIGTERM     256 clients; in the middle the server gets SIGTERM. No request without a reply may have been sent before it

The memory is the resident set of the server, sampled every second; its slope is that of the least squares line.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from peers.http_load import LEAVES_AFTER, Closed, Load, Open, closed_loop, open_loop, post
from peers.machine import cores, machine_info
from peers.servers import PAIR, STOP, Running, run_server
from serve import BEAM, PARTS, describe, generators, percentile, train_run, write

from heedful.tasks.translation.predictor import Translator

OVERLOAD, CLIENTS, LEAVING = 10, 64, 20
WAITING = 4  # times as many clients when the server is stopped, so that most of the accepted requests wait
SLACK = 1.0  # seconds after its deadline within which a reply must arrive
GAUGES = ("heedful_queue_depth", "heedful_running")
Samples = list[tuple[float, float]]  # seconds, megabytes


def closed_load(pool: Executor, server: Running, requests: list[bytes], clients: int, seconds: float) -> Load:
    return pool.submit(closed_loop, Closed(server.port, requests, clients, seconds, warm_up=min(5.0, seconds))).result()


def sample_memory(server: Running, load: Future[Load], every: float) -> Samples:
    """The resident set until the load ends."""
    started, samples = time.monotonic(), list[tuple[float, float]]()
    while not load.done():
        samples.append((time.monotonic() - started, server.resident_bytes() / 1e6))
        time.sleep(every)
    return samples


def slope(samples: Samples) -> float:
    """Megabytes per minute of the least squares line."""
    mean_time, mean_size = (sum(values) / len(samples) for values in zip(*samples, strict=True))
    spread = sum((at - mean_time) ** 2 for at, _ in samples)
    return 60 * sum((at - mean_time) * (size - mean_size) for at, size in samples) / spread if spread else 0.0


def memory_figures(samples: Samples) -> dict[str, Any]:
    """The first tenth of the time is left out: caches fill."""
    kept = samples[len(samples) // 10 :]
    tenth = max(1, len(kept) // 10)
    first, last = (percentile([size for _, size in part], 0.5) for part in (kept[:tenth], kept[-tenth:]))
    return {
        "start_mb": first,
        "end_mb": last,
        "growth_mb": last - first,
        "slope_mb_per_minute": slope(kept),
        "largest_mb": max(size for _, size in samples),
        "samples": [[round(at, 1), round(size, 1)] for at, size in samples[:: max(1, len(samples) // 120)]],
    }


def overload_figures(load: Load, rate: float, deadline: float) -> dict[str, Any]:
    latencies = [latency for _, latency in load.answered]
    statuses = load.statuses
    expected = {200, 429, 504}
    return {
        "offered_per_second": rate,
        "arrivals_per_second": (load.sent + load.unsent) / load.seconds,
        "sent_per_second": load.sent / load.seconds,
        "unsent": load.unsent,  # no connection was free
        "answered": statuses[200],
        "answered_per_second": load.rate,
        "refused_429": statuses[429],
        "refused_without_retry_after": load.no_retry_after,
        "deadline_exceeded_504": statuses[504],
        "other_statuses": {str(status): number for status, number in statuses.items() if status not in expected},
        "lost": len(load.lost),
        "clients_left": load.left,
        "deadline_seconds": deadline,
        "later_than_deadline": sum(latency > deadline + SLACK for latency in latencies),
        "p50_seconds": percentile(latencies, 0.5) if latencies else None,
        "p99_seconds": percentile(latencies, 0.99) if latencies else None,
        "slowest_seconds": max(latencies, default=None),
        "refused_p50_seconds": percentile(load.refused, 0.5) if load.refused else None,
        "refused_p99_seconds": percentile(load.refused, 0.99) if load.refused else None,
        "generator_cpu": load.cpu_seconds / load.seconds,
    }


def wait_until_idle(server: Running, seconds: float) -> dict[str, Any]:
    """The gauges of /metrics, as soon as they are 0, or after some time; a gauge that the server does not have is null."""
    started = time.monotonic()
    while True:
        found = {name: server.metric(name) for name in GAUGES}
        waited = time.monotonic() - started
        if not any(found.values()) or waited > seconds:
            return {**found, "seconds_until_idle": waited}
        time.sleep(0.1)


def stop_under_load(pool: Executor, server: Running, requests: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """SIGTERM while clients wait for replies; they end at their first reply that is not 200."""
    plan = Closed(server.port, requests, clients, seconds + STOP, ends_at_error=True)
    load = pool.submit(closed_loop, plan)
    time.sleep(seconds)
    signaled = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    exit_code = server.process.wait(STOP)
    ended = time.monotonic() - signaled
    found = load.result()
    after = [at for at, _ in found.answered if at > signaled]
    return {
        "exit_code": exit_code,
        "seconds_to_exit": ended,
        "answered": found.statuses[200],
        "answered_after_the_signal": len(after),
        "refused_503": found.statuses[503],
        "accepted_and_lost": sum(sent < signaled for sent in found.lost),
        "closed_after_the_signal": sum(sent >= signaled for sent in found.lost),
    }


def soak(run: Path, given: argparse.Namespace, results: dict[str, Any]) -> None:
    sentences = [source.strip() for source, _ in Translator.load(run, device="cpu").pairs("test")]
    requests = [post("/translate", {"q": text, "source": PAIR[0], "target": PAIR[1]}) for text in sentences]
    options = ["--device", "cpu", "--deadline", str(given.deadline), "--max-queue", str(given.max_queue)]
    with generators(1) as pool, run_server("heedful", run, options, BEAM) as server:
        before = closed_load(pool, server, requests, given.clients, given.capacity_seconds)
        capacity = before.rate
        results["capacity_per_second"] = capacity
        rate = min(OVERLOAD * capacity, given.max_rate)
        plan = Open(server.port, requests, rate, 60 * given.minutes, leaving=LEAVING, patience=given.deadline + 30)
        overload = pool.submit(open_loop, plan)
        samples = sample_memory(server, overload, min(1.0, 60 * given.minutes / 20))
        results["overload"] = overload_figures(overload.result(), rate, given.deadline)
        results["overload"]["share_of_capacity"] = results["overload"]["answered_per_second"] / capacity
        results["memory"] = memory_figures(samples)
        results["idle"] = wait_until_idle(server, given.deadline + 5)
        write(results, given.output)
        after = closed_load(pool, server, requests, given.clients, given.capacity_seconds)
        results["capacity_after_per_second"] = after.rate
        results["sigterm"] = stop_under_load(pool, server, requests, WAITING * given.clients, given.capacity_seconds)
    results["holds"] = conclude(results)
    write(results, given.output)


def conclude(results: dict[str, Any]) -> dict[str, bool]:
    overload, memory, idle, stopped = (results[name] for name in ("overload", "memory", "idle", "sigterm"))
    return {
        "overloaded_ten_times": overload["sent_per_second"] >= 0.9 * OVERLOAD * results["capacity_per_second"],
        "refused_with_retry_after": overload["refused_429"] > 0 and not overload["refused_without_retry_after"],
        "no_other_replies": not overload["other_statuses"] and not overload["lost"],
        "deadlines_kept": not overload["later_than_deadline"] and not overload["deadline_exceeded_504"],
        "memory_flat": memory["growth_mb"] <= 0.05 * memory["start_mb"],
        "slots_freed": not any(idle[name] for name in GAUGES),
        "capacity_kept": results["capacity_after_per_second"] >= 0.8 * results["capacity_per_second"],
        "sigterm_loses_nothing": not stopped["accepted_and_lost"] and stopped["exit_code"] == 0,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of overload, at most 60")
    parser.add_argument("--run", type=Path, help="a trained run, default: a model is trained for a short time")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--capacity-seconds", type=float, default=15)
    parser.add_argument("--deadline", type=float, default=30)
    parser.add_argument("--max-queue", type=int, default=1000, help="of the server")
    parser.add_argument("--max-rate", type=float, default=3000, help="requests per second that are sent at most")
    parser.add_argument("--tiny", action="store_true", help="a tiny model of the built-in corpus, to try the program")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    if not 0 < given.minutes <= 60:
        parser.error(f"given {given.minutes} minutes, expected more than 0 and at most 60")
    with tempfile.TemporaryDirectory() as folder:
        run = given.run or train_run(PARTS["cpu"], Path(folder), "cpu", given.tiny)
        results: dict[str, Any] = {
            **machine_info(),
            "cores": cores(),
            "model": describe(run),
            "minutes": given.minutes,
            "clients": given.clients,
            "leaves_after_seconds": LEAVES_AFTER,
            "every_nth_client_leaves": LEAVING,
        }
        soak(run, given, results)
    print(json.dumps({key: value for key, value in results.items() if key != "memory"}, indent=1))
    print(json.dumps({key: value for key, value in results["memory"].items() if key != "samples"}, indent=1))


if __name__ == "__main__":
    main()
