"""What a task consists of.

    TaskConfig       [task]: options, metrics with their direction, the head that it adds to a model
    TaskData         reads and checks its data, then encodes it with the tokenizers
    Task             batches, objective and validation; complete when it is constructed (the interface of training/loop.py)
    Predictor        a trained model at work (predictor.py)

TaskDefinition joins them for the registry. `RunConfig` is what a task may read of the config of a run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from heedful.config.base import Config, Problem
from heedful.data.report import CheckReport
from heedful.errors import DataError
from heedful.models.family import Architecture, FamilyConfig
from heedful.nn.model import Model
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor
from heedful.tasks.system import System
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.training.config import TrainingConfig
from heedful.training.loop import Task
from heedful.training.train_state import Direction

Tokenizers = tuple[Tokenizer, Tokenizer]  # of source and target; the same object where they are shared


class RunConfig(Protocol):
    """The config of a run, as far as tasks read it."""

    @property
    def seed(self) -> int: ...
    @property
    def model(self) -> FamilyConfig: ...
    @property
    def task(self) -> Any: ...
    @property
    def tokenizer(self) -> TokenizerConfig: ...
    @property
    def data(self) -> Any: ...
    @property
    def training(self) -> TrainingConfig: ...
    @property
    def search(self) -> SearchConfig: ...


class TaskConfig(Config):
    """Base class of [task]."""

    unit: ClassVar[str] = "tokens"  # what a batch is counted in: tokens, examples or actions
    architectures: ClassVar[tuple[Architecture, ...]]  # of the models that it trains
    compares_rows: ClassVar[bool] = False  # whether the loss of an example depends on the other examples of its batch
    name: str
    """Task."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        """Every metric of a validation, and whether higher or lower is better."""
        raise NotImplementedError

    @property
    def searches_in_updates(self) -> bool:
        """Whether every update runs a search, which can be neither compiled nor captured in a CUDA graph."""
        return False

    def add_head(self, model: Any, dim: int) -> Model:
        """The model to train: the given one, whose hidden states have size dim, with the head of the task."""
        plain: Model = model
        return plain

    def problems_with(self, run: Any) -> list[Problem]:
        """Problems of this config with the rest of a run's config; paths are relative to the run."""
        return []


def input_problems(model: FamilyConfig, task: str) -> list[Problem]:
    """Problems of a model whose input is not the tokens of one or two texts."""
    problems = []
    if model.sentence_grid is not None:
        given = f"given {model.family!r}, which reads documents as sentences; task {task!r} expects a model of one sequence"
        problems.append(Problem("model.family", given))
    if model.reads_spelling:
        problems.append(Problem("model.characters", f"task {task!r} provides no spelling of words; expected 0"))
    return [*problems, *vector_problems(model, task)]


def vector_problems(model: FamilyConfig, task: str) -> list[Problem]:
    """Problems of a model whose inputs are vectors, for a task of texts."""
    if not model.numeric_inputs:
        return []
    option = "features" if hasattr(model, "features") else "inputs"
    given = getattr(model, option)
    return [Problem(f"model.{option}", f"given {given!r}, but the inputs of task {task!r} are texts")]


def whole_text_problems(max_store_megabytes: int | None, task: str) -> list[Problem]:
    """Problems of a task that reads plain text as a whole."""
    if max_store_megabytes is None:
        return []
    sentence = f"given {max_store_megabytes}, but task {task!r} needs the whole text on the disk; remove it"
    return [Problem("data.max_store_megabytes", sentence)]


class TaskData(Protocol):
    """The data of a task."""

    def check(self) -> CheckReport:
        """Read all of it once, and report the unusable lines."""

    def files(self) -> list[Path]:
        """Every file that it reads."""

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer of a side is trained on."""

    @property
    def tags(self) -> list[str]:
        """Tags of source lines, each a single token."""

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> Any:
        """The encoded data for training and validation; report: the result of `check`."""

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""


class ExampleFile(NamedTuple):
    """Examples given as Python objects, as the text of a data file."""

    suffix: str  # of the file name
    text: str
    key: str  # option of [data.train] that names the file
    options: Mapping[str, Any] = {}  # further options of [data.train]
    data: Mapping[str, Any] = {}  # further options of [data]

    def entry(self, name: str) -> Any:
        """The value of data.train for a file of this name."""
        return {self.key: name, **self.options}


def format_rows(examples: Iterable[Any], what: str) -> ExampleFile:
    """Dictionaries with the same keys, {"date": "2024-05-31", "load": 1.5}, as a comma-separated table; what: is a row, for
    messages."""
    out = io.StringIO()
    writer, names = csv.writer(out, lineterminator="\n"), None
    for number, example in enumerate(examples, start=1):
        if not isinstance(example, Mapping) or not example or (names is not None and list(example) != names):
            expected = f"{what}, a dictionary with a value for each column" if names is None else f"a dictionary of {names}"
            raise DataError(f"example {number} is {example!r:.60}; expected {expected}")
        if names is None:
            names = list(example)
            writer.writerow(names)
        writer.writerow(example.values())
    return ExampleFile(".csv", out.getvalue(), "file")


def resolve_nothing(run: RunConfig) -> Mapping[str, object]:
    return {}


def finish_nothing(run: RunConfig, folder: Path) -> None: ...


def no_binary_files() -> Mapping[str, bytes]:
    return {}


class Starter(NamedTuple):
    """What `heed new` writes: a recipe and example data in the right format, to be replaced by the user's own."""

    recipe: str  # text of recipe.toml; paths are relative to its folder
    files: Mapping[str, str]  # name -> content
    input: str  # a line for `heed predict`; {folder} is the folder that `heed new` creates
    binary_files: Callable[[], Mapping[str, bytes]] = no_binary_files  # name -> content, made when they are written


class TaskDefinition(NamedTuple):
    """A task for the registry."""

    config: type[TaskConfig]
    data_config: type[Config]  # [data]
    data: Callable[[RunConfig], TaskData]
    task: Callable[[RunConfig, Any, System], Task]  # config, encoded data, model with its tokenizers
    predictor: type[Predictor]
    format_examples: Callable[[Iterable[Any]], ExampleFile]  # of Python objects, for `heedful.train(…, train=[…])`
    starter: Starter  # for `heed new`
    resolve: Callable[[RunConfig], Mapping[str, object]] = resolve_nothing  # options that are "auto" -> values, from the data
    other_data: tuple[type[Config], ...] = ()  # further forms of [data]
    finish: Callable[[RunConfig, Path], None] = finish_nothing  # called with the run folder when training is finished
