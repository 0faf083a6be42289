"""Faults of a server of every task: one server with a model of each, whose requests are invalid, fail, are left or wait.

A request that fails must fail alone: others of the same model are answered, and the server ends with 0.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from faults_files import flip
from faults_hostile import checkpoints_of
from faults_server import BAD, SERVE, Server, end, in_server, server, started
from faults_tasks import BROKEN, all_tasks, copied_runs, poison_weights, task_runs
from faults_workshop import Case, Outcome, Sandbox, expect, no_fault, patch, read_from_start

SLOW = {"compute": 1.0, "step": 0.3}  # seconds of a batch and of every step of decoding, of slowed models
OTHERS = 5  # good requests at the same time as a bad one
PROCESSES = ("translation", "classification", "forecasting", "image_classification")  # that get a process of their own
POISON = "poison"


def inputs_of(task: str) -> tuple[str, ...]:
    from tiny_tasks import example_of

    return example_of(task).inputs


def options_of(task: str) -> dict[str, Any]:
    """Options that make a prediction short."""
    from tiny_tasks import quick_options

    return quick_options(task)


def ask(one: Server, task: str, text: str, **fields: Any) -> tuple[int, str]:
    """Status and body of the reply to a request for one prediction."""
    status, _, body = one.ask({"model": task, "inputs": text, "options": options_of(task)} | fields)
    return status, body


def ask_together(one: Server, task: str, texts: Sequence[str]) -> list[int]:
    """The statuses of the replies to requests at the same time."""
    with ThreadPoolExecutor(len(texts)) as clients:
        return [status for status, _ in clients.map(partial(ask, one, task), texts)]


def nth_inputs(number: int) -> set[str]:
    return {inputs_of(task)[number] for task in all_tasks()}


def every_task(
    check: Callable[[Server, str], str | None], summary: str, fault: Callable[[], object], sandbox: Sandbox
) -> Outcome:
    """Serve a model of every task and check each; check(server, task) is what is wrong, "" if nothing is, None if the fault
    does not apply. Afterwards every model answers, and the server ends with 0."""
    runs = [task for task, _ in copied_runs(sandbox)]
    with server(sandbox, fault=fault, runs=runs) as one:
        found = {task: check(one, task) for task in runs}
        wrong = [f"{task}: {problem}" for task, problem in found.items() if problem]
        codes = Counter(ask(one, task, inputs_of(task)[0])[0] for task in runs)
        wrong += [] if codes == {200: len(runs)} else [f"afterwards {dict(codes)}"]
        done = end(sandbox, one.running)
    outcome = expect(done, 0)
    wrong += [] if done.code == 0 else [outcome.text]
    tried = len([problem for problem in found.values() if problem is not None])
    return Outcome(not wrong and tried > 8, f"{tried} tasks: {'; '.join(wrong) or summary}; exit {done.code}")


def invalid(one: Server, task: str) -> str:
    """Bodies that are no request, unknown names, and inputs that the task cannot read; then a good one."""
    good = inputs_of(task)[0]
    texts = ["a\0b", *([BROKEN[task][0]] if task in BROKEN else [])]
    codes = [one.ask(body)[0] for body in BAD.values()]
    codes += [ask(one, task, text)[0] for text in texts]
    wrong: tuple[dict[str, Any], ...] = ({"model": f"no-{task}"}, {"options": {"no": 1}}, {"inputs": [[good]]})
    codes += [ask(one, task, good, **fields)[0] for fields in wrong]
    bad = [code for code in codes if not 400 <= code < 500]
    status, _ = ask(one, task, good)
    return f"{bad}, then {status}" if bad or status != 200 else ""


def in_prediction(before: Callable[[Any, Sequence[str]], object]) -> None:
    """Call before(predictor, texts) when a model computes with texts: those of a batch, or the one of a job."""
    from heedful.serving import served

    def open_model(folder: Path, loading: Any) -> Any:
        predictor = own(folder, loading)
        predictions, job = predictor.predictions, predictor.job

        def predict(inputs: Sequence[str], **options: Any) -> Any:
            before(predictor, inputs)
            return predictions(inputs, **options)

        def start_job(text: str, **options: Any) -> Any:
            before(predictor, [text])
            return job(text, **options)

        predictor.predictions, predictor.job = predict, start_job
        return predictor

    own = patch(served, "open_model", open_model)


def fail_on(texts: set[str]) -> None:
    """The model fails on these texts: a batch with one of them is computed again without it."""

    def fail(predictor: Any, inputs: Sequence[str]) -> None:
        if texts.intersection(inputs):
            raise RuntimeError(POISON)

    in_prediction(fail)


def poison(one: Server, task: str) -> str:
    first, second, bad = inputs_of(task)[:3]
    codes = ask_together(one, task, [bad, *([first, second] * OTHERS)[:OTHERS]])
    return "" if codes == [500] + [200] * OTHERS else f"{codes}"


def in_tokenizer() -> None:
    from heedful.text.tokenizer import Tokenizer

    def encode_many(tokenizer: Tokenizer, texts: Sequence[str]) -> Any:
        if any(POISON in text for text in texts):
            raise RuntimeError(POISON)
        return own(tokenizer, texts)

    own = patch(Tokenizer, "encode_many", encode_many)


def poison_text(one: Server, task: str) -> str | None:
    first, second, bad = inputs_of(task)[:3]
    if bad.startswith(("{", "data:")):  # the model reads no text
        return None
    codes = ask_together(one, task, [f"{bad} {POISON}", *([first, second] * OTHERS)[:OTHERS]])
    return "" if codes == [500] + [200] * OTHERS else f"{codes}"


def slow_down() -> None:
    """Every batch of a model, and every step of decoding, takes longer."""
    from heedful.serving.worker import Worker

    def slow(own: Any, seconds: float, *arguments: Any) -> Any:
        time.sleep(seconds)
        return own(*arguments)

    for name, seconds in SLOW.items():
        own = getattr(Worker, name)
        setattr(Worker, name, lambda *arguments, own=own, seconds=seconds: slow(own, seconds, *arguments))


def leave(one: Server, task: str) -> str:
    """The clients close their connections: one in the middle of its request, three before the reply."""
    body = json.dumps({"model": task, "inputs": list(inputs_of(task)), "options": options_of(task)}).encode()
    head = f"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = head.encode() + b"Content-Type: application/json\r\n\r\n" + body
    before = left_requests(one)
    connections = [socket.create_connection((one.host, one.port), timeout=30) for _ in range(4)]
    for connection, size in zip(connections, (len(request) - len(body) // 2, *[len(request)] * 3), strict=True):
        connection.sendall(request[:size])
    time.sleep(SLOW["step"] / 2)
    for connection in connections:
        connection.close()
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        waiting, noticed = in_server(one), left_requests(one) - before
        if waiting == 0 and noticed == len(connections):
            return ""
        time.sleep(0.02)
    return "the server did not notice it, or goes on"


def left_requests(one: Server) -> float:
    """The requests whose clients left before the reply."""
    lines = one.ask(b"", "/metrics", "GET")[2].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("heedful_requests_total") and 'code="499"' in line)


def stopped_when_busy(sandbox: Sandbox) -> Outcome:
    """Three requests to each model, and SIGTERM once all are accepted."""
    runs = [task for task, _ in copied_runs(sandbox)]
    wanted = [(task, text) for task in runs for text in inputs_of(task)[:3]]
    with server(sandbox, fault=slow_down, runs=runs) as one:
        with ThreadPoolExecutor(len(wanted)) as clients:
            asked = [clients.submit(ask, one, task, text) for task, text in wanted]
            time.sleep(2 * SLOW["step"])  # until all are accepted
            waiting = in_server(one)
            one.running.send(signal.SIGTERM)
            codes = Counter(reply.result()[0] for reply in asked)
        done = sandbox.finish(one.running, time.monotonic() - one.running.started + 60)
    right = codes == {200: len(wanted)} and waiting > 0 and done.code == 0 and "Traceback" not in done.err
    answered = f"{codes[200]} of {len(wanted)} accepted requests answered"
    return Outcome(right, f"{len(runs)} tasks: {answered if right else dict(codes)}; exit {done.code}")


def refused_at_start(sandbox: Sandbox) -> Outcome:
    """A bit of the weights flipped; then a weight NaN, with a manifest that matches."""
    wrong, seen, starts = [], "", 0
    for task, run in copied_runs(sandbox):
        for damage, message in ((lambda folder: flip(folder / "model.safetensors"), "model.safetensors is damaged"),
                                (poison_weights, "has weights that are not finite")):  # fmt: skip
            shutil.rmtree(run)
            shutil.copytree(task_runs() / task / "run", run, symlinks=True)
            for folder in checkpoints_of(run):
                damage(folder)
            done = sandbox.injected(no_fault, "serve", task, *SERVE, limit=60)
            outcome, starts = expect(done, 4, message=message, also=done.err.count("error:") == 1), starts + 1
            seen = done.message_line
            wrong += [] if outcome.right else [f"{task}: {outcome.text}"]
    return Outcome(not wrong and starts > 20, f"{starts} starts: {'; '.join(wrong) or seen}")


def killed_process(sandbox: Sandbox) -> Outcome:
    """SIGKILL to the process of each model while three requests wait in it for others; the process is started again."""
    for task in PROCESSES:
        shutil.copytree(task_runs() / task / "run", sandbox.folder / task, symlinks=True)
    options = ("--model-process", "--max-wait-ms", "1500")
    command = [sys.executable, "-m", "heedful", "serve", *PROCESSES, *SERVE, *options]
    wrong = []
    with started(sandbox.spawn(command)) as one:
        models = model_processes(one.running.pid)
        for task, pid in zip(PROCESSES, models, strict=True):
            with ThreadPoolExecutor(3) as clients:
                asked = [clients.submit(ask, one, task, text) for text in inputs_of(task)[:3]]
                time.sleep(0.7)
                os.kill(pid, signal.SIGKILL)
                codes = [reply.result()[0] for reply in asked]
            wrong += [] if codes == [503] * 3 else [f"{task}: {codes}"]
        for task in PROCESSES:
            limit = time.monotonic() + 60
            while (status := ask(one, task, inputs_of(task)[0])[0]) == 503 and time.monotonic() < limit:
                time.sleep(0.2)
            wrong += [] if status == 200 else [f"{task}: then {status}"]
        done = end(sandbox, one.running)
    again = done.err.count("it is started again") == len(PROCESSES)
    right = not wrong and done.code == 0 and "Traceback" not in done.err and again
    seen = "; ".join(wrong) or "503 for the requests in it, later ones answered"
    return Outcome(right, f"{len(PROCESSES)} tasks: {seen}; exit {done.code}")


def model_processes(server: int) -> list[int]:
    """The processes of the models of a server, in the order of their start."""
    children = [int(child) for file in Path(f"/proc/{server}/task").glob("*/children") for child in file.read_text().split()]
    return sorted(child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())


def exhaust_once(texts: set[str]) -> None:
    """Memory is full the first time that each model computes with one of these texts: in its batch, or a step of decoding."""
    import torch

    from heedful.tasks.continuous_batching import ContinuousBatch

    armed, failed = list[Any](), list[Any]()  # predictors

    def exhaust() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")

    def step(batch: Any) -> Any:
        if armed:
            armed.clear()
            exhaust()
        return own(batch)

    def once(predictor: Any, inputs: Sequence[str]) -> None:
        if texts.intersection(inputs) and not any(predictor is one for one in failed):
            failed.append(predictor)
            if not predictor.decodes:
                exhaust()
            armed.append(predictor)

    own = patch(ContinuousBatch, "step", step)
    in_prediction(once)


def full_memory(one: Server, task: str) -> str:
    """What is decoded together fails together; other batches are computed again input by input, unless they have one."""
    from heedful.tasks import find_task

    codes = ask_together(one, task, inputs_of(task)[:2] * 3)
    failed = codes.count(500)
    right = failed >= 1 if find_task(task).predictor.decodes else failed <= 1
    return "" if right and failed + codes.count(200) == len(codes) else f"{codes}"


def without_stdout(redirection: str, json_too: bool, sandbox: Sandbox) -> Outcome:
    """Standard output is closed or full: the address cannot be printed as JSON; without --json, nothing is printed to it."""
    sandbox.trained_run_copy()
    port = ["--port", "0", "--device", "cpu", *(["--json"] if json_too else [])]
    script = f'exec "{sys.executable}" -m heedful serve run {" ".join(port)} {redirection}'
    running = sandbox.spawn(["bash", "-c", script])
    if json_too:
        return expect(sandbox.finish(running, 60), 4, message="standard output cannot be written")
    try:
        assert running.wait_for(lambda: "listening on" in read_from_start(running.err)), read_from_start(running.err)
        url = read_from_start(running.err).split("listening on http://")[1].split(",")[0]
        one = Server(running, url.split(":")[0], int(url.split(":")[1]))
        status = one.ask()[0]
        done = end(sandbox, running)
    except BaseException:
        running.send(signal.SIGKILL)
        raise
    return Outcome(expect(done, 0, also=status == 200).right, f"{status}, exit {done.code}")


ALONE = f"500 for this one, {OTHERS} others of its model are answered"
ANSWERED = "all accepted requests are answered; exit 0"
CASES = [
    Case(17, "requests, inputs and options that are invalid, every task", "400, 404 or 413 each; a good one is answered",
         partial(every_task, invalid, "400, 404 or 413 each, then 200", no_fault), prepare=task_runs),
    Case(17, "an input that makes the model fail, every task", ALONE,
         partial(every_task, poison, ALONE, lambda: fail_on(nth_inputs(2))), prepare=task_runs),
    Case(17, "a text that makes the tokenizer fail, every task that reads text", ALONE,
         partial(every_task, poison_text, ALONE, in_tokenizer), prepare=task_runs),
    Case(17, "clients leave in the middle of a request and before the reply, every task",
         "nothing waits; later requests are answered",
         partial(every_task, leave, "nothing waits, later requests answered", slow_down), prepare=task_runs),
    Case(17, "SIGTERM while requests wait, every task", ANSWERED, stopped_when_busy, prepare=task_runs),
    Case(17, "serve, a damaged checkpoint and a weight that is NaN, every task", "exit 4, one sentence", refused_at_start,
         prepare=task_runs),
    Case(17, "the process of a model is killed while requests wait", "503 for these; it is started again; exit 0",
         killed_process, prepare=task_runs),
    Case(9, "out of memory once in a server, every task", "500 for what is decoded in this step; all others are answered",
         partial(every_task, full_memory, "200, or 500 for the requests of the step", lambda: exhaust_once(nth_inputs(1))),
         prepare=task_runs),
    Case(16, "serve, >&-", "it serves; exit 0", partial(without_stdout, ">&-", False)),
    Case(16, "serve --json, >/dev/full", "exit 4, one sentence", partial(without_stdout, ">/dev/full", True)),
    Case(16, "serve --json, >&-", "exit 4, one sentence", partial(without_stdout, ">&-", True)),
]  # fmt: skip
