"""Build tokenizers, a model and a task from a config."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from heedful.data.encode import content_hash
from heedful.data.report import CheckReport
from heedful.data.sources import find_path
from heedful.data.structure_files import Matrix, read_structure
from heedful.errors import ConfigError, lookup
from heedful.models import make_family
from heedful.nn.gates import add_gates
from heedful.nn.model import Model
from heedful.runs.config import Run
from heedful.tasks import find_task
from heedful.tasks.base import TaskData, Tokenizers
from heedful.tasks.system import System
from heedful.text.tokenizer import Tokenizer
from heedful.text.train import train_tokenizer
from heedful.training.facts import check_files, damage_as_checkpoint_error
from heedful.training.loop import Task
from heedful.training.ranks import Ranks
from heedful.training.signals import interruptible

FASTEST_FIRST = ("cuda", "mps", "cpu")


def choose_device(name: str | None = None) -> torch.device:
    """The named device; default: the fastest that this machine has: cuda, then mps, then cpu."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name is None:
        return torch.device(next(kind for kind in FASTEST_FIRST if available[kind]))
    kind = name.split(":")[0]
    if kind == "gpu":
        raise ConfigError("device: given 'gpu', expected one of: cpu, cuda, mps", hint="did you mean 'cuda'?")
    if not lookup(kind, available, "device"):
        known = ", ".join(kind for kind, is_available in available.items() if is_available)
        raise ConfigError(f"device: given {name!r}, but this machine has: {known}")
    return torch.device(name)


def make_tokenizers(run: Run, folder: Path, data: TaskData) -> Tokenizers:
    """The (source, target) tokenizers of the run folder, else those of training.init, else new ones trained on the data."""
    shared, source, target = (folder / f"{side}tokenizer.json" for side in ("", "source.", "target."))
    if run.training.init:
        check_files(Path(run.training.init))
        with damage_as_checkpoint_error(Path(run.training.init)):
            for path in (shared, source, target):
                given = Path(run.training.init) / path.name
                if given.exists() and not path.exists():
                    Tokenizer.load(given).save(path)
        return load_tokenizers(folder)

    def load_or_train(path: Path, lines: Callable[[], Iterable[str]], tags: Sequence[str]) -> Tokenizer:
        if not path.exists():
            interruptible(lambda: train_tokenizer(run.tokenizer, lines(), tags)).save(path)
        return Tokenizer.load(path)

    def both_sides() -> Iterator[str]:
        yield from data.lines("source")
        yield from data.lines("target")

    if run.tokenizer.shared:
        tokenizer = load_or_train(shared, both_sides, data.tags)
        return tokenizer, tokenizer
    return (
        load_or_train(source, lambda: data.lines("source"), data.tags),
        load_or_train(target, lambda: data.lines("target"), []),
    )


def load_tokenizers(folder: Path) -> Tokenizers:
    shared = folder / "tokenizer.json"
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return tokenizer, tokenizer
    if not (folder / "source.tokenizer.json").exists():
        return Tokenizer.load(shared), Tokenizer.load(shared)  # raises the error for a missing file
    return Tokenizer.load(folder / "source.tokenizer.json"), Tokenizer.load(folder / "target.tokenizer.json")


def data_of(run: Run) -> TaskData:
    """The data of the run's task."""
    return find_task(run.task.name).data(run)


def make_model(run: Run, source_vocab: int, target_vocab: int) -> Model:
    """A model with initial weights drawn by the run's seed."""
    torch.manual_seed(run.seed)
    model = run.task.add_head(make_family(run.model, source_vocab, target_vocab), run.model.dim)
    if run.training.gates.penalty:
        add_gates(model, run.training.gates.kinds)
    return model


def data_hashes(run: Run) -> dict[str, str]:
    """SHA-256 of every file that the run reads."""
    others = [run.training.vectors, *(structure.file for structure in run.model.structures.values())]
    files = [*data_of(run).files(), *(find_path(name) for name in others if name is not None)]
    return {str(file): content_hash(file) for file in files}


def read_structures(run: Run) -> dict[str, Matrix]:
    """The matrices of the model's attention structures, from their files."""
    structures = run.model.structures.items()
    return {name: read_structure(config, f"model.{name}") for name, config in structures if config.shape is not None}


def fill_structures(run: Run, model: Any) -> None:
    """Set the matrices of the model's attention structures; a stored model has them in its weights."""
    for name, matrix in read_structures(run).items():
        getattr(model.base_model, name).set(torch.from_numpy(matrix))


def make_system(
    run: Run, models: Sequence[Any], tokenizers: Tokenizers, device: torch.device, ranks: Ranks | None = None
) -> System:
    return System(models, *tokenizers, device, max_length=run.data.max_length, ranks=ranks or Ranks())


def make_task(run: Run, model: Model, tokenizers: Tokenizers, corpora: Any, ranks: Ranks | None = None) -> Task:
    """The task of a run; corpora: its data, encoded with the tokenizers; ranks: the processes that train it."""
    device = next(model.parameters()).device
    return find_task(run.task.name).task(run, corpora, make_system(run, [model], tokenizers, device, ranks))


def check(run: Run, data: TaskData, show: Callable[[str], None]) -> CheckReport:
    """Check the files of the run before they are used, show the lines of the report on the data, and return it; too many
    unusable lines are an error."""
    read_structures(run)
    report = data.check()
    refusal = report.training_error(run.data.max_unusable)
    if refusal is not None:
        raise refusal
    for line in report.lines():
        show(line)
    return report
