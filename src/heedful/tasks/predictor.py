"""The base class of what `heedful.load` returns: a trained model with its config and tokenizers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, overload

import torch
from torch import Tensor

from heedful.config.base import plain
from heedful.config.given import ARGUMENT, OVERRIDE, refuse_repeats
from heedful.config.read import read_settings
from heedful.config.toml import write_value
from heedful.data.conllu import Arc
from heedful.data.input_lines import MAX_CHARACTERS, chunk_lines, read_texts
from heedful.data.samples import Sample
from heedful.data.sources import find_path
from heedful.data.splits import SPLITS
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.tables import table
from heedful.nn.model import SequenceModel
from heedful.nn.precision import with_precision
from heedful.search import SearchConfig
from heedful.search.hypothesis import OPTIONS_OF
from heedful.tasks import find_task
from heedful.tasks.continuous_batching import Job
from heedful.tasks.decoding import Decoder
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss
from heedful.tasks.forced import ForcedBatch
from heedful.tasks.system import System
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.tasks.base import RunConfig

FORKS = [0]  # number of os.fork() calls between this process and its first ancestor that was not forked


def count_fork() -> None:
    FORKS[0] += 1


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=count_fork)


class Prediction(Protocol):
    """The output for one input."""

    @property
    def text(self) -> str:
        """The best output."""

    def rows(self) -> list[str]:
        """The lines to print."""

    def to_dict(self) -> dict[str, Any]: ...


class Report(Protocol):
    """The result of `heed evaluate`."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader of the result should know; shown beside it."""

    def text(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


class ValidationResult(NamedTuple):
    figures: dict[str, float]
    sentences: int | None
    translated: int | None
    signatures: dict[str, str]


class Figures(NamedTuple):
    """A report of plain figures on a split of the run's data."""

    split: str
    figures: dict[str, float]
    warnings: Sequence[str] = ()

    def text(self) -> str:
        rows = [(name.replace("_", " "), f"{value:.4g}") for name, value in self.figures.items()]
        return table([("figure", self.split), *rows])

    def to_dict(self) -> dict[str, Any]:
        return {"split": self.split, "figures": self.figures}


MAX_CONFIGS = 64  # search options that a predictor keeps
LOSS_TOKENS = 2**12  # tokens in a batch of `training_losses`
Value = TypeVar("Value")
Loader = Callable[[Path], "Predictor"]  # run folder -> predictor
Searcher = Callable[["Predictor"], SearchConfig]


class ExampleInput(NamedTuple):
    """An input from the run's data."""

    text: str  # as a line of `heed predict`; a table has several lines
    expected: str | None  # the label, the caption or the action of the data; None: not known
    name: str | None = None  # of a part of the data that has one; None: it has only its number


class Predictor:
    """A trained model, loaded from a checkpoint of a run: the base class of what `heedful.load` returns.

    >>> predictor = heedful.load(run)
    >>> len(predictor.predict(["w1 w2", "w3"]))
    2
    """

    phases: ClassVar[tuple[str, ...]] = ("training step",)  # computations whose cost is counted, by name
    has_source: ClassVar[bool] = False  # whether its model encodes a source
    decodes: ClassVar[bool] = False  # whether its outputs are searched for token by token, and it has jobs
    predicts_input: ClassVar[bool] = False  # whether its outputs are the tokens of the input itself, as of a language model
    has_probabilities: ClassVar[bool] = True  # of its outputs; False: they are numbers
    reads_text: ClassVar[bool] = True  # whether its inputs are texts; else they are images, tables, graphs or histories

    def __init__(self, run: RunConfig, system: System, checkpoint: Path) -> None:
        self.run, self.checkpoint = run, checkpoint
        self.search_configs: dict[Any, SearchConfig] = {}  # by the options that they were made from
        self.reads_paths = True  # whether an input may be, or is checked for, the path of a file
        self.loaded, self.forks = replace(system, checkpoint=checkpoint), FORKS[0]

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for model in self.loaded.models for parameter in model.parameters())
        several = f"ensemble of {len(self.loaded.models)} x " if len(self.loaded.models) > 1 else ""
        run = self.checkpoint.parent.parent
        return (
            f"{type(self).__name__}({several}{self.run.model.family}, {parameters:,} parameters, "
            f"{str(run)!r}, {self.checkpoint.name}, {self.loaded.device})"
        )

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        checkpoint: str | None = None,
        device: str | None = None,
        precision: str | None = None,
    ) -> Self:
        """`heedful.load`, with an error if the run is of another task."""
        from heedful import load

        return cls.of(load(folder, checkpoint, device, precision))

    @overload
    def predict(self, inputs: str, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[str], **options: Any) -> list[str]: ...
    def predict(self, inputs: str | Sequence[str], **options: Any) -> str | list[str]:
        """The output for one text, or for each of several: a translation, a continued text, a label.

        options: those of `SearchConfig`, by name, and those of the task."""
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def is_one(self, inputs: Any) -> bool:
        """Whether a Python object is one input, not a collection of several: a text, or in a task of other inputs a dictionary,
        such as the columns of a table."""
        return isinstance(inputs, str) or (not self.reads_text and isinstance(inputs, Mapping))

    def apply(self, inputs: Any, read: Callable[[Any], Value], **options: Any) -> Any:
        """`read` of the prediction for one input, or of that for each of several: one value, or a list."""
        is_one = self.is_one(inputs)
        if not is_one and not isinstance(inputs, Iterable):
            raise DataError(f"given {inputs!r:.60}; expected one input, or a list of inputs")
        several = [inputs] if is_one else list(inputs)
        for number, given in enumerate(several, start=1):
            if not self.is_one(given) and not isinstance(given, Iterable):
                raise DataError(f"input {number} is {given!r:.60}; expected one as the task has them, such as a text")
        outputs = [read(prediction) for prediction in self.predictions(several, **options)]
        return outputs[0] if is_one else outputs

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Prediction]:
        """Yield the outputs one by one, with scores; options as in `predict`."""
        raise NotImplementedError

    def job(self, text: str, *, number: int = 0, stream: bool = False, **options: Any) -> Job:
        """The prediction for one text as a job of continuous batching, for a task that `decodes`. number: of the text among
        others, which keys random numbers; stream: the output is read while it is generated; options as in `predictions`."""
        raise self.no_analysis()

    def decoder(self) -> Decoder:
        """What decodes the jobs."""
        raise self.no_analysis()

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Prediction]:
        """One output for each input; inputs arrive in chunks, and the outputs of a chunk come before the next is read.

        options: of the task's command; unknown: filled with the words outside the vocabulary and the first input of each;
        first: number of the first input, which keys random numbers and is in messages."""
        raise NotImplementedError

    def join_lines(self, chunks: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The inputs of `predict_chunks` from lines in chunks: each line is one, or several lines are one in some tasks."""
        return iter(chunks)

    def input_lines(self, file: Path) -> Iterator[str]:
        """The inputs of a file of `heed predict`; "-" is standard input."""
        return read_texts(file, may_be_empty=True)

    def file_inputs(self, files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
        """Every input of some files, in order, with its file. The last input of a file ends with it."""
        for file in files:
            for chunk in self.refuse_no_input(self.join_lines(chunk_lines(self.input_lines(file))), str(file)):
                yield from ((file, text) for text in chunk)

    def refuse_no_input(self, chunks: Iterable[Sequence[str]], name: str) -> Iterator[Sequence[str]]:
        """Yield the inputs of a file or of standard input in chunks; an error if there is none, except for texts: a pipe may
        have no lines. name: of the file, for messages."""
        count = 0
        for chunk in chunks:
            count += len(chunk)
            yield chunk
        if not count and not self.reads_text:
            (what,) = self.input_names
            raise DataError(f"{name} is empty; expected {'an' if what[0] in 'aeiou' else 'a'} {what}")

    def refuse_path(self, text: str, place: str) -> None:
        """Raise an error for the path of a file in place of its content, unless paths are not read: a client must not learn
        which files exist."""
        if self.reads_paths and os.path.isfile(text):  # noqa: PTH113 (Path.is_file raises for a long text)
            (what,) = self.input_names
            raise DataError(
                f"{place} has only the path of a file, {text[:200]!r}; expected the text of the {what}",
                hint="give the content of the file",
            )

    def one_input(self, text: str) -> str:
        """The input of an analysis: the text, or the only input of the file with this path."""
        if not (self.reads_paths and os.path.isfile(text)):  # noqa: PTH113 (Path.is_file raises for a long text)
            return text
        found = [given for _, given in self.file_inputs([Path(text)])]
        if len(found) != 1:
            raise DataError(f"{text} has {len(found):,} inputs; expected one", hint="give a file with one of them")
        return found[0]

    def check_inputs(self, files: Sequence[Path], options: Any) -> None:
        """Raise an error for options of the task's command that do not fit the input files, before any work."""

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Report:
        """Evaluate for `heed evaluate`; options: of the task's command; load: loads another run, to compare with; search: the
        search options of a predictor, changed as the user asks. split: default: test."""
        raise NotImplementedError

    def validate(self) -> ValidationResult:
        """Evaluate on the validation data, as in training."""
        raise NotImplementedError

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Yield for each batch of the first `count` training examples a function that computes -log p of each, (rows,)."""
        raise NotImplementedError

    def no_analysis(self) -> ConfigError:
        """The error of an analysis that the task does not support."""
        return ConfigError(f"a run of task {self.run.task.name!r} does not support this analysis")

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """The sentences of a split of the run's data, with what is known of them; none if the run has no such split."""
        raise self.no_analysis()

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """Example inputs from a split of the run's data, for models whose inputs are not text; none without this split."""
        return iter(())

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """The sentences of a file in the format of the task."""
        raise self.no_analysis()

    def sample_of(self, text: str, arcs: Sequence[Arc] | None = None) -> Sample:
        """The sample of an input text; arcs: its dependency tree."""
        return Sample(None, text, target_arcs=arcs)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Teacher-forced batches of samples. Missing targets are predicted by the model; samples that do not fit are left
        out."""
        raise self.no_analysis()

    def training_lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The training text of a side."""
        return find_task(self.run.task.name).data(self.run).lines(side)

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """Encode a text for an analysis. target: the output to analyze, default: the model's own; config: search options,
        default: those of the run. What the task does not have is an error."""
        raise self.no_analysis()

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded | None:
        """Decode the output of an example again, with a forced prefix; None: the task decodes none, its target is the text."""
        return None

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        """The example with another input and the same outputs, to compare their probabilities. Not of a task whose choices
        are parts of the input."""
        if not self.predicts_input:
            raise self.no_analysis()
        raise ConfigError(
            f"a run of task {self.run.task.name!r} predicts its own text, so another text has other outputs; expected a run "
            "that translates or classifies"
        )

    def token_loss(self) -> TokenLoss:
        """The cross-entropy that the run was trained with."""
        return TokenLoss()

    @property
    def input_names(self) -> Sequence[str]:
        """The names of the texts of an input. Several are separated by tabs in a line."""
        return ["text"]

    @property
    def positions(self) -> int:
        """The number of positions that the model reads in training, at most; of a model with a source, in its target."""
        longest: int = self.run.data.sides[1]
        return longest

    @property
    def input_tokenizer(self) -> Tokenizer:
        """The tokenizer of input texts."""
        return self.system.target_tokenizer

    def unknown_words(self, text: str) -> list[str]:
        """The words of an input text that are not in the vocabulary; none of a model that also reads the spelling of words, or
        numbers."""
        if self.run.model.reads_spelling or self.run.model.numeric_inputs:
            return []
        return self.input_tokenizer.unknown_words(text)

    @classmethod
    def of(cls, predictor: Predictor) -> Self:
        """The predictor itself; an error if it is of another class."""
        if isinstance(predictor, cls):
            return predictor
        from heedful.tasks import TASKS, find_task

        tasks = " or ".join(repr(name) for name in TASKS if issubclass(find_task(name).predictor, cls))
        folder, task = predictor.checkpoint.parent.parent, predictor.run.task.name
        raise ConfigError(f"{folder} is a run of task {task!r}, expected a run of task {tasks}")

    def join(self, others: Sequence[Predictor]) -> Self:
        """An ensemble of this predictor and others with the same vocabularies."""
        raise ConfigError(f"--with: given a run of task {self.run.task.name!r}, which has no ensembles")

    @property
    def system(self) -> System:
        """The model and its tokenizers. torch's threads do not survive a fork: a child process would wait for them forever."""
        threads = torch.get_num_threads()
        if self.forks < FORKS[0] and threads > 1 and self.loaded.device.type == "cpu":
            raise ConfigError(
                f"a model loaded before os.fork() was used in the child process with {threads} torch threads, which do not "
                "exist there; expected 1 thread",
                hint='call torch.set_num_threads(1) in the child, or start it with the method "spawn" and load the model there',
            )
        return self.loaded

    @property
    def model(self) -> SequenceModel:
        return self.system.models[0]

    def at(self, precision: str) -> Self:
        """A predictor with copies of the models in fp32, bf16 or int8."""
        models: list[Any] = [with_precision(model, precision, self.system.device) for model in self.system.models]
        return type(self)(self.run, replace(self.system, models=models, engines={}), self.checkpoint)

    def search_config(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """The run's search options with some of them changed ("beam=5"). Another method starts from its own defaults; an option
        that only one method has selects that method."""
        refuse_repeats(changes, origin)
        given = dict(change.split("=", 1) for change in changes if "=" in change)
        own = plain(self.run.search)
        implied = [method for method, names in OPTIONS_OF.items() if any(name in given for name in names)]
        if "method" not in given and len(implied) == 1 and implied[0] != self.run.search.method:
            changes, given = [*changes, f'method="{implied[0]}"'], given | {"method": implied[0]}  # beam=5 implies beam search
        if given.get("method", self.run.search.method).strip("\"'") != self.run.search.method:
            own = {name: value for name, value in own.items() if name not in OPTIONS_OF.get(self.run.search.method, ())}
        kept = [f"{name}={write_value(value)}" for name, value in own.items() if value is not None]
        return read_settings(SearchConfig, None, [*kept, *changes], origin=origin).config

    def search_config_from(self, options: Mapping[str, Any]) -> SearchConfig:
        """The run's search options changed by keyword arguments: {"beam": 5}. Those that were used last are kept: a server is
        given the same options again and again."""
        key = tuple((name, type(value), value) for name, value in options.items())
        try:
            known = self.search_configs.get(key)
        except TypeError:  # a value that is no number or text, which is an error below
            known = None
        if known is None:
            changes = [f"{name}={value_as_toml(name, value)}" for name, value in options.items()]
            known = self.search_config(changes, origin=ARGUMENT)
            while len(self.search_configs) >= MAX_CONFIGS:
                self.search_configs.pop(next(iter(self.search_configs)))
            self.search_configs[key] = known
        return known


def refuse_empty(text: str, target: str | None = None) -> None:
    """Raise an error for texts without a word."""
    if not text.strip():
        raise ConfigError("given an empty text, expected at least one word")
    if target is not None and not target.strip():
        raise ConfigError(
            "given an empty target, expected at least one word", hint="omit the target to use the model's own output"
        )


def value_as_toml(name: str, value: object) -> str:
    """The value of a keyword argument as TOML, the syntax of overrides."""
    try:
        return write_value(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ConfigError(f"{ARGUMENT}: {name}: given a value of type {kind}, expected a number or a text") from None


def check_split(data: Any, split: str) -> None:
    """Raise an error unless this is the name of a split and the folder of the data, if it has one, exists."""
    lookup(split, dict.fromkeys(SPLITS), "split")
    folder = getattr(data, "folder", None)
    if folder is None or getattr(data, split) is not None or find_path(folder).is_dir():
        return
    raise DataError(
        f"the folder of the run's data, {folder!r}, was found neither here nor in ./data nor in $HEED_DATA",
        hint="run the command where the run was trained, or set HEED_DATA",
    )


def missing_split_error(split: str) -> ConfigError:
    return ConfigError(f"the run has no {split} data", hint="use the validation data: --split valid")


def note_unknown(lines: Iterable[str], tokenizer: Tokenizer, unknown: dict[str, int], first: int = 1) -> Iterator[str]:
    """Yield the lines; their words outside the vocabulary are added to `unknown`, with the number of the line; first: the
    number of the first line."""
    for number, line in enumerate(lines, start=first):
        for word in tokenizer.unknown_words(line) if len(line) <= MAX_CHARACTERS else ():  # a longer line is refused later
            unknown.setdefault(word, number)
        yield line


def note_unknown_in_chunks(
    chunks: Iterable[Sequence[str]], tokenizer: Tokenizer, unknown: dict[str, int], first: int = 1
) -> Iterator[list[str]]:
    """`note_unknown` for lines in chunks, which are encoded together; first: the number of the first line."""
    for chunk in chunks:
        short = [line if len(line) <= MAX_CHARACTERS else "" for line in chunk]  # a longer line is refused later
        for number, (line, ids) in enumerate(zip(short, tokenizer.encode_many(short), strict=True), start=first):
            for word in tokenizer.unknown_words(line) if tokenizer.specials.unk in ids else ():
                unknown.setdefault(word, number)
        yield list(chunk)
        first += len(chunk)
