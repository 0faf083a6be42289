"""`heed serve` in a process of its own, as it is or with another model behind the same HTTP front.

heedful          as it is
one at a time    the model is called for one text after another
ctranslate2      the same queue hands its batches to CTranslate2, with the same weights
empty handler    /translate returns its text, so that only the HTTP stack is measured
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.models.transformer import Transformer
from heedful.runs.load import load
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import Candidate, Translation
from peers.decoders import DECODERS

BENCHMARKS = Path(__file__).parents[1]
PAIR = ("en", "de")  # languages that are given to every run
LIMIT = 100  # tokens of its translations: it has one limit for a whole batch, and the replies must not depend on the others
ROWS = 64  # sentences that CTranslate2 translates at a time offline
START, STOP = 240.0, 60.0  # seconds


class CTranslate2(Translator):
    """A translation model whose texts are translated by CTranslate2."""

    decodes = False  # it translates batches

    def open(self, precision: str) -> CTranslate2:
        assert isinstance(self.model, Transformer), "the run is one of serve.py"
        self.decode = DECODERS["ct2"](self.model, self.system.target_tokenizer.specials, precision, torch.device("cpu"))
        return self

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Translation]:
        config, given = self.search_config_from(options), list(texts)
        for start in range(0, len(given), ROWS):
            rows = given[start : start + ROWS]
            encoded = self.system.source_tokenizer.encode_many(rows)
            found = self.decode(encoded, config.model_copy(update={"max_length": LIMIT}))
            decoded = self.system.target_tokenizer.decode_many([best for best, *_ in found])
            for row, text, hypotheses in zip(rows, decoded, found, strict=True):
                yield Translation(row, [Candidate(text, 0.0, 0.0, hypotheses[0])])


def load_system(
    system: str, run: Path, device: str | None, precision: str, search: Sequence[str], checkpoint: str | None = None
) -> Predictor:
    """The model of a system, with search options changed."""
    by_ct2 = system == "ctranslate2"
    predictor = load(run, checkpoint, device, None if by_ct2 else precision)
    config: Any = predictor.run
    predictor.run = config.model_copy(update={"search": predictor.search_config(search)})
    return CTranslate2(predictor.run, predictor.loaded, predictor.checkpoint).open(precision) if by_ct2 else predictor


def offline(system: str, run: Path, device: str, precision: str, search: Sequence[str]) -> Callable[[list[str]], list[str]]:
    """A function that translates texts without a server."""
    predictor = load_system(system, run, device, precision, search)
    return lambda texts: [prediction.text for prediction in predictor.predictions(texts)]


class OneAtATime:
    """A queue without batches: one text after another."""

    def __init__(self, load: Callable[[], Predictor], limits: object, metrics: object) -> None:
        self.waiting, loaded = queue.SimpleQueue[Any](), Future[Predictor]()
        threading.Thread(target=self.work, args=(load, loaded), daemon=True).start()
        self.predictor = loaded.result()

    def submit(self, request: Any) -> None:
        self.waiting.put(request)

    def cancel(self, request_id: int) -> None:
        """Not needed: the clients of the benchmark stay."""

    def drain(self, timeout: float) -> bool:
        return True

    def work(self, load: Callable[[], Predictor], loaded: Future[Predictor]) -> None:
        from heedful.serving.worker import Failed, Finished

        loaded.set_result(load())
        while True:
            request = self.waiting.get()
            try:
                for index, text in enumerate(request.inputs):
                    (prediction,) = self.predictor.predictions([text], **request.options)
                    request.listener(Finished(index, prediction))
            except Exception as error:
                request.listener(Failed(error))


SYSTEMS = ("heedful", "one at a time", "ctranslate2", "empty handler")


def change_server(system: str, search: Sequence[str]) -> None:
    """Replace the parts of the server, in this process, that are not those of `heed serve`."""
    from heedful.serving import libretranslate, served

    def open_model(folder: Path, loading: served.Loading) -> Predictor:
        return load_system(system, folder, loading.device, loading.precision or "fp32", search, loading.checkpoint)

    async def echo(call: object, given: Any) -> dict[str, str]:
        return {"translatedText": given.q}

    if system == "ctranslate2":
        served.open_model = open_model
    if system == "one at a time":
        served.Worker = OneAtATime  # type: ignore[assignment, attr-defined]
    if system == "empty handler":
        endpoints = libretranslate.ENDPOINTS
        endpoints[:] = [one._replace(handler=echo) if one.path == "/translate" else one for one in endpoints]


class Running(NamedTuple):
    """A server at work."""

    process: subprocess.Popen[str]
    port: int

    def pids(self) -> list[int]:
        """The server, and the processes of its models."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid, *map(int, children.read_text().split() if children.exists() else ())]

    def cpu_seconds(self) -> float:
        """CPU time so far."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids()]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")  # user and system time

    def resident_bytes(self) -> int:
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def metric(self, name: str) -> float | None:
        """A value of /metrics; None if there is none of this name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            found = re.search(rf"^{re.escape(name)} (\S+)$", reply.read().decode(), re.MULTILINE)
        return None if found is None else float(found[1])

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP)


@contextmanager
def run_server(system: str, run: Path, options: Sequence[str] = (), search: Sequence[str] = ()) -> Iterator[Running]:
    """A server on a free port of the loopback interface; options: of `heed serve`."""
    paths = [str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "peers.servers", system, ",".join(search), f"{run}={'-'.join(PAIR)}"]
    with subprocess.Popen(
        [*command, "--port", "0", "--json", *options],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    ) as process:  # fmt: skip
        kill = threading.Timer(START, process.kill)
        kill.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            kill.cancel()
            if not line:
                raise SystemExit(f"{system}: the server did not start")
            yield Running(process, int(json.loads(line)["url"].rpartition(":")[2]))
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(STOP)
        finally:
            kill.cancel()
            process.kill()


def main() -> None:
    from heedful.cli import run

    system, search, *arguments = sys.argv[1:]
    changes = [change for change in search.split(",") if change]
    change_server(system, changes)
    raise SystemExit(run(["serve", *arguments, *(part for change in changes for part in ("--search", change))]))


if __name__ == "__main__":
    main()
