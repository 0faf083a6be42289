"""The models of a server: loaded from run folders, found by id or by language pair.

The id of a model is the name of its run folder. The languages of a translation model are those of its data; where the config
does not name them, or to override them, they are given with the folder: runs/mine=en-de.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from heedful.errors import ConfigError, HeedfulError
from heedful.runs.build import choose_device
from heedful.runs.load import load
from heedful.serving.languages import match_language
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_process import ModelProcess
from heedful.serving.worker import Failed, Finished, Request, Worker
from heedful.tasks import find_command, find_task
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.predictor import Translator
from heedful.training.averaging import inference_stem
from heedful.training.manifest import read_manifest

MAX_ANALYSES = 4  # that wait or run, for each model
BUILTIN = ("en", "it")  # languages of the built-in grammar
Pair = tuple[str, str]  # source and target language


@dataclass(frozen=True)
class Loading:
    """How models are loaded."""

    checkpoint: str | None = None
    device: str | None = None
    precision: str | None = "fp32"  # None: the weights as trained
    search: Sequence[str] = ()  # options that differ from those of the run, as "beam=4"
    in_process: bool | None = None  # whether models have processes of their own; None: on a GPU


def open_model(folder: Path, loading: Loading) -> Predictor:
    """Load a run folder, with the search options of the server."""
    predictor = load(folder, loading.checkpoint, loading.device, loading.precision)
    predictor.reads_paths = False  # a client must not choose files of the server
    if loading.search:
        run: Any = predictor.run
        predictor.run = run.model_copy(update={"search": predictor.search_config(loading.search)})
    return predictor


class Served:
    """A model at work: its predictor, its queue, and the thread of its analyses."""

    def __init__(self, folder: Path, pair: Pair | None, loading: Loading, limits: Limits, metrics: Metrics) -> None:
        self.id, self.folder, self.loading = folder.resolve().name, folder, loading
        start = partial(open_model, folder, loading)
        self.worker: Worker | ModelProcess
        if loading.in_process or (loading.in_process is None and choose_device(loading.device).type == "cuda"):
            self.worker = ModelProcess(start, limits, metrics)
            self.predictor = self.inspected
        else:
            self.worker = Worker(start, limits, metrics)
            self.predictor = self.worker.predictor
        self.pair = pair or languages_of(self.predictor)
        if pair is not None and not isinstance(self.predictor, Translator):
            raise ConfigError(f"{folder}: given languages, but it is a run of task {self.task!r}, which translates nothing")
        self.weights = weights_hash(self.predictor.checkpoint)
        self.created = int(self.predictor.checkpoint.stat().st_mtime)
        self.recorded = self.record_canary()
        self.analyst, self.analyses = Lock(), BoundedSemaphore(MAX_ANALYSES)  # one runs, the others wait
        about = {"task": self.task, "weights": self.weights[:16], "precision": str(loading.precision)}
        metrics.models.labels(self.id).info(about)

    async def attach(self) -> None:
        """Called once, in the event loop of the server."""
        if isinstance(self.worker, ModelProcess):
            await self.worker.attach()

    @property
    def task(self) -> str:
        name: str = self.predictor.run.task.name
        return name

    @property
    def canary(self) -> str:
        """A text whose output tells whether the model works."""
        return find_task(self.task).starter.input

    @property
    def canary_options(self) -> dict[str, Any]:
        return {"length": 8} if "length" in {field.name for field in fields(find_command(self.task).predict)} else {}

    def record_canary(self) -> str | None:
        """The output for the canary; None if its inputs are not texts. The first prediction also prepares the model."""
        event = self.worker.predict_alone(Request([self.canary], self.canary_options))
        if isinstance(event, Finished):
            return event.prediction.text
        if isinstance(event, Failed) and not isinstance(event.error, HeedfulError):
            raise event.error
        return None

    @cached_property
    def inspected(self) -> Predictor:
        """The predictor of analyses: the weights as trained, because those of the model thread are packed or of low precision;
        on a CPU, because another thread would disturb the capture of CUDA graphs."""
        return open_model(self.folder, replace(self.loading, device="cpu", precision=None))

    def describe(self) -> dict[str, Any]:
        command = find_command(self.task)
        languages = None if self.pair is None else {"source": self.pair[0], "target": self.pair[1]}
        return {"id": self.id, "task": self.task, "command": command.name, "languages": languages, "weights": self.weights}


class Models:
    """All models of a server."""

    def __init__(self, models: Sequence[Served], pivot: str | None = None) -> None:
        self.by_id = {model.id: model for model in models}
        if len(self.by_id) < len(models):
            names = sorted(model.id for model in models)
            twice = next(name for name, after in pairwise(names) if name == after)
            raise ConfigError(f"two run folders are named {twice!r}, which is the id of the model", hint="rename one of them")
        self.by_pair: dict[Pair, Served] = {}
        for model in models:
            if model.pair is not None:
                self.by_pair.setdefault(model.pair, model)
        self.pivot = pivot
        if pivot is not None and pivot not in {code for pair in self.by_pair for code in pair}:
            raise ConfigError(
                f"--pivot: given {pivot!r}, expected one of: {', '.join(self.sources) or 'no language is served'}"
            )

    def __iter__(self) -> Iterator[Served]:
        return iter(self.by_id.values())

    @cached_property
    def sources(self) -> list[str]:
        """The languages that can be translated."""
        return sorted({source for source, _ in self.by_pair})

    @cached_property
    def all_targets(self) -> list[str]:
        """The languages that some language can be translated to."""
        return sorted({target for _, target in self.by_pair})

    def targets(self, source: str) -> list[str]:
        """The languages that a language can be translated to."""
        known = {code for pair in self.by_pair for code in pair}
        return sorted(target for target in known if target != source and self.route(source, target))

    def route(self, source: str, target: str) -> list[Served]:
        """The models that translate a pair, one after another; none: the pair is not served."""
        if (source, target) in self.by_pair:
            return [self.by_pair[source, target]]
        if self.pivot is None or self.pivot in (source, target):
            return []
        legs = [self.by_pair.get((source, self.pivot)), self.by_pair.get((self.pivot, target))]
        return [leg for leg in legs if leg is not None] if None not in legs else []

    def source(self, code: str) -> str | None:
        return match_language(code, self.sources)

    def target(self, code: str) -> str | None:
        return match_language(code, self.all_targets)


def load_models(runs: Sequence[str], loading: Loading, limits: Limits, metrics: Metrics, pivot: str | None) -> Models:
    """Load run folders, each given as a folder or as folder=source-target."""
    given = [parse_run(run) for run in runs]
    return Models([Served(folder, pair, loading, limits, metrics) for folder, pair in given], pivot)


def parse_run(text: str) -> tuple[Path, Pair | None]:
    """runs/mine, or runs/mine=en-de with the languages."""
    folder, equals, languages = text.rpartition("=")
    if not equals or Path(text).exists():
        return Path(text), None
    source, _, target = languages.partition("-")
    if not source or not target or source == target:
        raise ConfigError(
            f"given {text!r}, expected a run folder, or a folder and its languages: {folder or 'runs/mine'}=en-de"
        )
    return Path(folder), (source, target)


def languages_of(predictor: Predictor) -> Pair | None:
    """The languages of a translation model, as far as the config of its data names them."""
    data: Any = predictor.run.data
    if not isinstance(predictor, Translator):
        return None
    if data.builtin is True:
        return BUILTIN
    named = [data.languages, *(corpus.languages for corpus in data.train or ())]
    return next((pair for pair in named if pair is not None), None)


def weights_hash(checkpoint: Path) -> str:
    """The SHA-256 of the weights, or of those of their parts, from the manifest; they were compared when they were loaded."""
    digests = [file.sha256 for file in read_manifest(checkpoint).files_of(inference_stem(checkpoint)).values()]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
