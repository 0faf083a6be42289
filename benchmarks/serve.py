"""Throughput and latency of `heed serve` under load, with every reply checked.

    python benchmarks/serve.py --parts cpu --output benchmarks/results/serve_cpu.json
    python benchmarks/serve.py --parts gpu --output benchmarks/results/serve_gpu.json

cpu    small Transformer (d256, 3 + 3 layers, vocabulary 8,000), 64 clients: `heed serve`, the same front with the model called
       for one text after another, with CTranslate2 behind the same queue, and with an empty handler
gpu    Transformer base (d512, 6 + 6 layers, vocabulary 37,000), bf16, 256 clients: `heed serve` and offline decoding, with a
       beam of 4 and greedy; the front with an empty handler

The models are trained for a few hundred steps on Multi30k (or given with --run), so that their translations have realistic
lengths. Clients send the sentences of test2016 one by one to /translate over kept-alive connections, each as soon as it has its
reply. The server and the clients have processes of their own. Every reply is compared with the offline translation of its
sentence by the same system: equal; a tie (scores differ by less than 1e-4, in fp32); different; or mixed up: the translation of
another sentence.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.http_load import Closed, Load, closed_loop, post
from peers.laps import timed
from peers.machine import cores, machine_info
from peers.processes import in_processes
from peers.servers import PAIR, offline, run_server

from heedful.tasks.translation.predictor import Translator

PACKAGES = ("uvicorn", "starlette", "ctranslate2")
EMPTY = "empty handler"
TIE = 1e-4  # scores that differ by less are ties
BEAM, GREEDY = ("method=beam", "beam=4", "penalty=power"), ("method=greedy",)
SHORT = [
    "training.schedule.warmup=100",
    "training.average=none",
    "training.keep_last=1",
    "task.validation_sentences=50",
    "model.position=sinusoidal",
]


class System(NamedTuple):
    kind: str  # one of peers.servers
    precision: str
    search: tuple[str, ...]  # options


class Part(NamedTuple):
    """A model, its load, and the systems that are measured."""

    recipe: str
    overrides: list[str]
    clients: int
    generators: int  # processes of clients
    systems: dict[str, System]


PARTS = {
    "cpu": Part(
        "multi30k-en-de-cpu",
        [*SHORT, "training.steps=400", "training.save_every=400", "training.validate_every=400"],
        clients=64,
        generators=1,
        systems={
            "heedful": System("heedful", "fp32", BEAM),
            "one at a time": System("one at a time", "fp32", BEAM),
            "ctranslate2": System("ctranslate2", "fp32", BEAM),
            "heedful int8": System("heedful", "int8", BEAM),
            "ctranslate2 int8": System("ctranslate2", "int8", BEAM),
            "empty handler": System("empty handler", "fp32", ()),
        },
    ),
    "gpu": Part(
        "multi30k-en-de",
        [
            *SHORT, "training.steps=600", "training.save_every=600", "training.validate_every=600", "task.r_drop=0",
            "training.precision=bf16", "training.cuda_graphs=true", "data.pad_to_multiple_of=16",
            "training.schedule.learning_rate=7e-4", "tokenizer.vocab=37000", "tokenizer.min_frequency=1",
            "model.dim=512", "model.layers=6", "model.heads=8", "model.feed_forward=2048",
        ],
        clients=256,
        generators=4,
        systems={
            "heedful beam 4": System("heedful", "bf16", BEAM),
            "heedful greedy": System("heedful", "bf16", GREEDY),
            "empty handler": System("empty handler", "bf16", ()),
        },
    ),
}  # fmt: skip
TINY = [
    "data.counts={train = 200, valid = 20, test = 30}", "data.batch_tokens=256", "tokenizer.shared=true", "model.dim=16",
    "model.layers=1", "model.heads=2", "model.feed_forward=32", "model.tie=all", "task.validation_metrics=['bleu']",
    "task.validation_sentences=4", "search.max_extra=3", "training.steps=4", "training.save_every=4",
    "training.validate_every=4", "training.schedule.warmup=2",
]  # fmt: skip


class Setting(NamedTuple):
    """How all systems are measured."""

    run: Path
    device: str
    clients: int
    seconds: float
    warm_up: float
    sentences: list[str]


def train_run(part: Part, folder: Path, device: str, tiny: bool) -> Path:
    """A model trained for a short time, by `heed train` in a process of its own."""
    run = folder / "run"
    recipe, overrides = ("demo", TINY) if tiny else (part.recipe, part.overrides)
    if device != "cuda":
        overrides = [change for change in overrides if "bf16" not in change and "cuda_graphs" not in change]
    subprocess.run(
        [sys.executable, "-m", "heedful", "train", recipe, *overrides, "--run", run, "--device", device],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return run


def translations_of(setting: Setting, part: Part) -> dict[str, tuple[list[str], float]]:
    """The offline translations of each system that has a model, and their sentences per second. Systems with the same model
    share them."""
    found: dict[str, tuple[list[str], float]] = {}
    done: dict[System, tuple[list[str], float]] = {}
    for name, (system, precision, search) in part.systems.items():
        if system == EMPTY:
            found[name] = setting.sentences, 0.0
            continue
        model = "ctranslate2" if system == "ctranslate2" else "heedful"
        key = System(model, precision, search)
        if key not in done:
            with in_processes({name: partial(offline, model, setting.run, setting.device, precision, search)}) as calls:
                calls[name](setting.sentences)  # captures graphs
                seconds, texts = timed(lambda call=calls[name]: call(setting.sentences), 1.0)  # type: ignore[misc]
            done[key] = texts, len(texts) / seconds
        found[name] = done[key]
    return found


@contextmanager
def generators(number: int) -> Iterator[Executor]:
    """Processes for clients, started and ready."""
    with ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.2] * number))
        yield pool


def put_under_load(pool: Executor, number: int, port: int, setting: Setting) -> list[Load]:
    """The clients, shared among the processes, which start at different sentences."""
    requests = [post("/translate", {"q": text, "source": PAIR[0], "target": PAIR[1]}) for text in setting.sentences]
    share = -(-setting.clients // number)
    plans = [
        Closed(
            port, requests, min(share, setting.clients - share * one), setting.seconds, setting.warm_up,
            first=len(requests) * one // number,
        )
        for one in range(number)
    ]  # fmt: skip
    return list(pool.map(closed_loop, plans))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]


def summarize(loads: Sequence[Load], expected: Sequence[str], tokens: Sequence[int]) -> dict[str, Any]:
    """The figures of a load, and how its replies compare with the expected ones. `different` has one entry for each distinct
    reply: (sentence, reply, number)."""
    latencies = [latency for load in loads for _, latency in load.answered]
    seconds = max(load.seconds for load in loads)
    equal = mixed_up = 0
    different: list[tuple[int, str, int]] = []
    errors: dict[str, int] = {}
    served_tokens = 0
    others = set(expected)
    for load in loads:
        for (request, status, body), number in load.replies.items():
            if status != 200:
                errors[str(status)] = errors.get(str(status), 0) + number
                continue
            text = json.loads(body)["translatedText"]
            served_tokens += tokens[request] * number
            if text == expected[request]:
                equal += number
            else:
                different.append((request, text, number))
                mixed_up += number * (text in others)
    replies = sum(load.statuses.total() for load in loads)
    rate = sum(load.rate for load in loads)
    return {
        "requests": sum(load.sent for load in loads),
        "replies": replies,
        "errors": errors,
        "lost": sum(len(load.lost) for load in loads),
        "equal": equal,
        "mixed_up": mixed_up,
        "different": different,
        "requests_per_second": rate,
        "sentences_per_second": rate,  # a request has one
        "target_tokens_per_second": rate * served_tokens / max(1, replies - sum(errors.values())),
        "p50_seconds": percentile(latencies, 0.5) if latencies else None,
        "p99_seconds": percentile(latencies, 0.99) if latencies else None,
        "generator_cpu": sum(load.cpu_seconds for load in loads) / seconds,  # cores that the clients used
    }


def separate_ties(found: dict[str, Any], translator: Translator, of: System, setting: Setting, expected: Sequence[str]) -> None:
    """Count the different replies whose scores equal those of the expected ones, computed from the texts. In lower precision
    a translation may depend on its batch, and all are only counted."""
    different: list[tuple[int, str, int]] = found.pop("different")
    found["ties"], found["different"] = 0, sum(number for _, _, number in different)
    if of.precision != "fp32":
        return
    penalty = translator.search_config(of.search).length_penalty_fn
    sources = [setting.sentences[request] for request, _, _ in different]
    ours, theirs = (
        [None if one is None else one.log_probability / penalty(one.tokens) for one in translator.score(sources, texts)]
        for texts in ([text for _, text, _ in different], [expected[request] for request, _, _ in different])
    )
    found["largest_score_difference"] = 0.0
    for (_, _, number), score, best in zip(different, ours, theirs, strict=True):
        gap = math.inf if score is None or best is None else abs(score - best)
        found["largest_score_difference"] = max(gap, found["largest_score_difference"])
        if gap <= TIE:
            found["ties"] += number
            found["different"] -= number


def measure_system(pool: Executor, number: int, setting: Setting, of: System) -> tuple[list[Load], dict[str, Any]]:
    """Start a server, put it under load, and end it."""
    system, precision, search = of
    started = time.monotonic()
    with run_server(system, setting.run, ["--device", setting.device, "--precision", precision], search) as server:
        ready = time.monotonic()
        cpu = server.cpu_seconds()
        loads = put_under_load(pool, number, server.port, setting)
        used, elapsed = server.cpu_seconds() - cpu, time.monotonic() - ready
        resident = server.resident_bytes()
        exit_code = server.stop()
    return loads, {
        "server_cpu": used / elapsed,  # cores
        "server_resident_mb": resident / 1e6,
        "start_seconds": ready - started,
        "exit_code": exit_code,
    }


def measure(part: Part, setting: Setting, results: dict[str, Any], output: Path) -> None:
    """All systems, one after another; results are written after each."""
    expected = translations_of(setting, part)
    translator = Translator.load(setting.run, device="cpu")
    count_tokens = translator.system.target_tokenizer.encode_many
    results["offline"] = {}
    for name, (texts, rate) in expected.items():
        if rate:
            tokens = sum(len(ids) + 1 for ids in count_tokens(texts))
            results["offline"][name] = {
                "sentences_per_second": rate,
                "target_tokens_per_second": rate * tokens / len(texts),
                "target_tokens_per_sentence": tokens / len(texts),
            }
    write(results, output)
    with generators(part.generators) as pool:
        for name, of in part.systems.items():
            texts, _ = expected[name]
            loads, more = measure_system(pool, part.generators, setting, of)
            found = summarize(loads, texts, [len(ids) + 1 for ids in count_tokens(texts)]) | more
            separate_ties(found, translator, of, setting, texts)
            results["systems"][name] = found
            results |= conclude(results)
            write(results, output)
            print(row_of(name, found), flush=True)


def conclude(results: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios between the systems that are measured so far."""
    rates = {name: found["requests_per_second"] for name, found in results["systems"].items()}
    ratios: dict[str, float] = {}
    for name, rate in rates.items():
        if name.startswith("heedful"):
            ratios |= {f"{name} / {other}": rate / rates[other] for other in rates if other != name and rates[other]}
            alone = results["offline"][name]["sentences_per_second"]
            ratios[f"{name} / offline"] = rate / alone
            if EMPTY in rates:
                ratios[f"{name} / lower of offline and {EMPTY}"] = rate / min(alone, rates[EMPTY])
    replies = list(results["systems"].values())
    return {
        "ratios": ratios,
        "all_answered": all(not found["errors"] and not found["lost"] for found in replies),
        "none_mixed_up": not any(found["mixed_up"] for found in replies),
    }


def row_of(name: str, found: Mapping[str, Any]) -> str:
    return (
        f"{name:<20} {found['requests_per_second']:9.1f} requests/s  p50 {1000 * (found['p50_seconds'] or 0):7.1f} ms  "
        f"p99 {1000 * (found['p99_seconds'] or 0):7.1f} ms  equal {found['equal']}  ties {found['ties']}  "
        f"different {found['different']}  mixed up {found['mixed_up']}  errors {found['errors']}  lost {found['lost']}  "
        f"cpu {found['server_cpu']:.2f} + {found['generator_cpu']:.2f}"
    )


def write(results: Mapping[str, Any], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", choices=list(PARTS), default="cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cpu for the part cpu, cuda for gpu")
    parser.add_argument("--run", type=Path, help="a trained run, default: a model is trained for a short time")
    parser.add_argument("--systems", type=lambda text: text.split(","), help="default: all of the part")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--seconds", type=float, default=None, help="of load for each system; default: 60 (gpu: 15)")
    parser.add_argument("--warm-up", type=float, default=None, help="seconds; default: 5 (gpu: 10)")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--tiny", action="store_true", help="a tiny model of the built-in corpus in fp32, to try the program")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    part, on_gpu = PARTS[given.parts], given.parts == "gpu"
    device = given.device or ("cuda" if on_gpu else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("the part gpu needs a GPU, but torch finds none")
    if given.systems is not None:
        if unknown := [name for name in given.systems if name not in part.systems]:
            parser.error(f"given system {unknown[0]!r}, expected one of: {', '.join(part.systems)}")
        part = part._replace(systems={name: part.systems[name] for name in given.systems})
    if device == "cpu":  # bf16 is for the GPU
        known = {name: of._replace(precision="fp32") if of.precision == "bf16" else of for name, of in part.systems.items()}
        part = part._replace(systems=known, generators=min(part.generators, cores()))
    with tempfile.TemporaryDirectory() as folder:
        run = given.run or train_run(part, Path(folder), device, given.tiny)
        sentences = [source.strip() for source, _ in Translator.load(run, device="cpu").pairs("test")][: given.sentences]
        setting = Setting(
            run, device, given.clients or part.clients, given.seconds or (15.0 if on_gpu else 60.0),
            (10.0 if on_gpu else 5.0) if given.warm_up is None else given.warm_up, sentences,
        )  # fmt: skip
        results: dict[str, Any] = {
            **machine_info(*(package for package in PACKAGES if is_installed(package))),
            "part": given.parts,
            "cores": cores(),
            "http_parser": "httptools" if find_spec("httptools") else "h11",
            "event_loop": "uvloop" if find_spec("uvloop") else "asyncio",
            "model": describe(run),
            "clients": setting.clients,
            "seconds": setting.seconds,
            "sentences": len(sentences),
            "systems": {},
        }
        measure(part, setting, results, given.output)
    print(json.dumps({key: results[key] for key in ("ratios", "all_answered", "none_mixed_up")}, indent=1))


def is_installed(package: str) -> bool:
    """Whether it has metadata; a copied package has none."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def describe(run: Path) -> dict[str, Any]:
    translator = Translator.load(run, device="cpu")
    return {
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "vocabulary": len(translator.system.target_tokenizer),
        **{name: getattr(translator.run.model, name) for name in ("dim", "layers", "heads", "feed_forward")},
    }


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
