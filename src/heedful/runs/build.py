"""Build tokenizers, data, a model and a task from a config, and load a run folder as a predictor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.data.encode import content_hash
from heedful.data.sources import find_path
from heedful.errors import CheckpointError, ConfigError, DataError, lookup
from heedful.models import MODELS
from heedful.nn.gates import add_gates
from heedful.runs.classifier import Classifier
from heedful.runs.config import Run, read_run
from heedful.runs.core_sharing import share_cores
from heedful.runs.predictor import Predictor
from heedful.runs.text_generator import TextGenerator
from heedful.search import SearchConfig
from heedful.studies.report import Inspection, inspect
from heedful.tasks import TASKS
from heedful.tasks.evaluate_translations import Evaluation, Examples, MetricOptions, Scored, evaluate, score_pairs
from heedful.tasks.translate import System, Translation, translate, translate_chunks
from heedful.tasks.translation import examples_of
from heedful.text.tokenizer import Tokenizer
from heedful.text.train import train_tokenizer
from heedful.training import retention
from heedful.training.averaging import inference_stem, inference_weights
from heedful.training.checkpoint import shapes
from heedful.training.facts import CONFIG, DICTIONARY, check_files
from heedful.training.signals import interruptible
from heedful.training.weights import load_into, parameter_limit

__all__ = [
    "Translator",
    "check",
    "examples_of",
    "load",
    "load_ensemble",
    "load_into",
    "make_corpora",
    "make_model",
    "make_tokenizers",
]

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


def make_tokenizers(run: Run, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """The (source, target) tokenizers of the run folder, else those of training.init, else new ones trained on the data."""
    shared, source, target = (folder / f"{side}tokenizer.json" for side in ("", "source.", "target."))
    task = task_of(run)
    if run.training.init:
        check_files(Path(run.training.init))
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
        yield from task.lines("source")
        yield from task.lines("target")

    if run.tokenizer.shared:
        tokenizer = load_or_train(shared, both_sides, task.tags)
        return tokenizer, tokenizer
    return (
        load_or_train(source, lambda: task.lines("source"), task.tags),
        load_or_train(target, lambda: task.lines("target"), []),
    )


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    shared = folder / "tokenizer.json"
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return tokenizer, tokenizer
    if not (folder / "source.tokenizer.json").exists():
        return Tokenizer.load(shared), Tokenizer.load(shared)  # raises the error for a missing file
    return Tokenizer.load(folder / "source.tokenizer.json"), Tokenizer.load(folder / "target.tokenizer.json")


def task_of(run: Run) -> Any:
    """The run's task, not yet bound to its data and model (see `make_task`)."""
    return lookup(run.task.name, TASKS, "task")(run.task, run.data, run.search, run.seed)


def make_corpora(run: Run, tokenizers: tuple[Tokenizer, Tokenizer], report: Any) -> Any:
    """The training and validation data of the task; report: the result of `check`."""
    return task_of(run).open_corpora(tokenizers, report, keep_text=run.tokenizer.dropout > 0)


def make_model(run: Run, source_vocab: int, target_vocab: int) -> nn.Module:
    """A model with initial weights drawn by the run's seed."""
    torch.manual_seed(run.seed)
    plain = lookup(run.model.family, MODELS, "model family")(run.model, source_vocab, target_vocab)
    model: nn.Module = task_of(run).prepare_model(plain)
    if run.training.gates.penalty:
        add_gates(model, run.training.gates.kinds)
    return model


def data_hashes(run: Run) -> dict[str, str]:
    """SHA-256 of every file that the run reads."""
    vectors = [] if run.training.vectors is None else [find_path(run.training.vectors)]
    return {str(file): content_hash(file) for file in [*task_of(run).files(), *vectors]}


def make_system(run: Run, models: Sequence[Any], tokenizers: tuple[Tokenizer, Tokenizer], device: torch.device) -> System:
    return System(models, *tokenizers, device, max_length=run.data.max_length)


def make_task(run: Run, model: nn.Module, tokenizers: tuple[Tokenizer, Tokenizer], corpora: Any) -> Any:
    device = next(model.parameters()).device
    return task_of(run).bind(corpora, make_system(run, [model], tokenizers, device), run.tokenizer.dropout)


def check(run: Run, show: Callable[[str], None]) -> Any:
    """Check the data before it is used, show the lines of the report, and return it."""
    report = task_of(run).check()
    for line in report.lines():
        show(line)
    return report


class Translator(Predictor):
    """A trained translation model."""

    def translate(self, lines: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each line; options of `SearchConfig` may be given by name."""
        return [translation.text for translation in self.translations(lines, **search)]

    def translations(self, lines: Iterable[str], **search: Any) -> Iterator[Translation]:
        """Yield the translations one by one, with scores and n-best candidates; options as in `translate`."""
        if isinstance(lines, str):
            raise ConfigError(
                f"one text was given, {lines!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return translate(self.system, lines, self.search_config_from(search))

    def translate_chunks(
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, prefixes: Iterable[str] | None = None
    ) -> Iterator[Translation]:
        """Yield the translations of lines that arrive in chunks, each chunk before the next is read; prefixes: text that each
        translation must start with."""
        return translate_chunks(self.system, chunks, config, prefixes)

    def inspect(self, text: str, target: str | None = None, **search: Any) -> Inspection:
        """The attention weights for a text and its translation, or the given target; shown in notebooks, written by `save`."""
        facts = [self.run.model.family, self.checkpoint.parent.parent.name]
        return inspect(self.system, text, self.search_config_from(search), target, facts)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored | None]:
        """The log-probability of each target given its source; None if a side is too long for the model."""
        return score_pairs(self.system, sources, targets)

    def evaluate(
        self,
        examples: Examples | tuple[Sequence[str], Sequence[str]],
        metrics: Sequence[str] = ("bleu", "chrf"),
        options: MetricOptions | None = None,
        **search: Any,
    ) -> Evaluation:
        """Loss, perplexity and metrics on (sources, references); options of `SearchConfig` may be given by name.

        >>> sources, references = ["w1 w2", "w3"], ["w2 w1", "w3"]
        >>> result = translator.evaluate((sources, references), metrics=("bleu", "chrf"), beam=2)
        >>> sorted(result.figures)
        ['bleu', 'chrf', 'loss', 'perplexity']
        >>> len(result.translations)
        2
        """
        return evaluate(self.system, examples_from(examples), self.search_config_from(search), metrics, options=options)


def examples_from(given: Examples | tuple[Sequence[str], Sequence[str]]) -> Examples:
    """Sources and references as lists; anything but two lists of texts is an error."""
    sides = [] if isinstance(given, str) else list(given)
    if len(sides) != 2 or any(isinstance(side, str) for side in sides):
        raise ConfigError(
            f"evaluate was given {given!r:.60}; expected (sources, references), two lists of texts",
            hint="call translator.evaluate((sources, references))",
        )
    return Examples(*map(list, sides))


PREDICTORS: dict[str, type[Predictor]] = {"translation": Translator, "language": TextGenerator, "classification": Classifier}


def load(
    folder: str | os.PathLike[str],
    checkpoint: str | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> Any:
    """Load a run folder as a `Translator`, `TextGenerator` or `Classifier`, depending on its task.

    checkpoint: best, last, average or step-N; default: the best, else the newest.
    precision: fp32, bf16, or on a CPU int8, as `Predictor.at`; default: the weights as trained, in fp32."""
    path = Path(folder)
    chosen = retention.resolve(path, checkpoint)
    run, tokenizers = read_folder(path)
    with parameter_limit(shapes(chosen, inference_stem(chosen)), chosen):
        model = make_model(run, len(tokenizers[0]), len(tokenizers[1]))
    load_into(model, inference_weights(chosen), chosen)
    where = choose_device(device)
    share_cores()
    model = model.to(where).eval()
    predictor = lookup(run.task.name, PREDICTORS, "task")(run, make_system(run, [model], tokenizers, where), chosen)
    return predictor if precision is None else predictor.at(precision)


def load_translator(folder: Path, checkpoint: str | None = None, device: str | None = None) -> Translator:
    """`load`, with an error if the run's task is not translation."""
    predictor = load(folder, checkpoint, device)
    if not isinstance(predictor, Translator):
        raise ConfigError(f"{folder} is a run of task {predictor.run.task.name!r}; expected a run of 'translation'")
    return predictor


def read_folder(path: Path) -> tuple[Run, tuple[Tokenizer, Tokenizer]]:
    """The config and the tokenizers of a run folder."""
    check_files(path)
    try:
        return with_local_dictionary(read_run(path / CONFIG).config, path), load_tokenizers(path)
    except (ConfigError, DataError) as error:
        raise CheckpointError(
            f"run folder {path} is damaged: {error.args[0]}", hint="restore the file from a copy, or train the run again"
        ) from error


def load_ensemble(folders: Sequence[Path], checkpoint: str | None = None, device: str | None = None) -> Translator:
    """Load several runs with the same vocabularies as one translator."""
    members = [load_translator(folder, checkpoint, device) for folder in folders]
    first = members[0]
    for folder, member in zip(folders, members, strict=True):
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(member.system, side).fingerprint != getattr(first.system, side).fingerprint:
                raise ConfigError(
                    f"{folder} has another {side.replace('_', ' ')} than {folders[0]}; expected the same in all runs"
                )
    models = [member.model for member in members]
    tokenizers = first.system.source_tokenizer, first.system.target_tokenizer
    return Translator(first.run, make_system(first.run, models, tokenizers, first.system.device), first.checkpoint)


def with_local_dictionary(run: Run, folder: Path) -> Run:
    """The config of a run folder with the full path of its dictionary, which must be a file of that folder."""
    name = run.search.dictionary
    if name is None:
        return run
    if name != DICTIONARY:
        raise CheckpointError(
            f"{folder / CONFIG}: search.dictionary is {name!r}; expected {DICTIONARY!r}, a file of the run folder",
            hint=f"copy the dictionary to {folder / DICTIONARY} and set search.dictionary to {DICTIONARY!r}",
        )
    return with_dictionary(run, str(folder / DICTIONARY))


def with_dictionary(run: Run, name: str) -> Run:
    """The config with another path of its dictionary, if it has one."""
    if run.search.dictionary is None:
        return run
    return run.model_copy(update={"search": run.search.model_copy(update={"dictionary": name})})
