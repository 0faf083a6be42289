"""The one place where names become objects: from a config to tokenizers, stores, a model and a task; from a run folder
back to a model that translates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.classifier import Classifier
from heedful.config import Run, read_run
from heedful.core_sharing import share_cores
from heedful.data.encode import content_hash
from heedful.data.sources import find_path
from heedful.errors import CheckpointError, ConfigError, DataError, lookup
from heedful.models import MODELS
from heedful.nn.gates import add_gates
from heedful.predictor import Predictor
from heedful.studies.report import Inspection, inspect
from heedful.tasks import TASKS
from heedful.tasks.evaluate_translations import Evaluation, Examples, MetricOptions, Scored, evaluate, score_pairs
from heedful.tasks.translate import System, Translation, translate
from heedful.tasks.translation import examples_of
from heedful.text.tokenizer import Tokenizer
from heedful.text.train import train_tokenizer
from heedful.text_generator import TextGenerator
from heedful.training import retention
from heedful.training.averaging import inference_stem, inference_weights
from heedful.training.checkpoint import shapes
from heedful.training.facts import CONFIG, DICTIONARY, check_files
from heedful.training.signals import interruptible
from heedful.training.weights import load_into, parameter_limit

Report = Callable[[str], None]

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
    """The named device, or the fastest that this machine has: cuda, then mps, then cpu."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name is None:
        return torch.device(next(kind for kind in FASTEST_FIRST if there[kind]))
    kind = name.split(":")[0]
    if kind == "gpu":
        raise ConfigError("device 'gpu' was asked for; expected one of: cpu, cuda, mps", hint="did you mean 'cuda'?")
    if not lookup(kind, there, "device"):
        known = ", ".join(kind for kind, found in there.items() if found)
        raise ConfigError(f"device {name!r} was asked for, but this machine has: {known}")
    return torch.device(name)


def make_tokenizers(run: Run, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Those of the run folder, or else those that its first weights belong to, or new ones trained on the training text."""
    shared, source, target = (folder / f"{side}tokenizer.json" for side in ("", "source.", "target."))
    task = task_of(run)
    if run.training.init:
        check_files(Path(run.training.init))
        for path in (shared, source, target):
            given = Path(run.training.init) / path.name
            if given.exists() and not path.exists():
                Tokenizer.load(given).save(path)
        return load_tokenizers(folder)

    def made(path: Path, lines: Callable[[], Iterable[str]], tags: Sequence[str]) -> Tokenizer:
        if not path.exists():
            interruptible(lambda: train_tokenizer(run.tokenizer, lines(), tags)).save(path)
        return Tokenizer.load(path)

    def both() -> Iterator[str]:
        yield from task.lines("source")
        yield from task.lines("target")

    if run.tokenizer.shared:
        tokenizer = made(shared, both, task.tags)
        return tokenizer, tokenizer
    return made(source, lambda: task.lines("source"), task.tags), made(target, lambda: task.lines("target"), [])


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    shared = folder / "tokenizer.json"
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return tokenizer, tokenizer
    if not (folder / "source.tokenizer.json").exists():
        return Tokenizer.load(shared), Tokenizer.load(shared)  # says that it is missing
    return Tokenizer.load(folder / "source.tokenizer.json"), Tokenizer.load(folder / "target.tokenizer.json")


def task_of(run: Run) -> Any:
    """The run's task, which knows its data but has not met its model yet."""
    return lookup(run.task.name, TASKS, "task")(run.task, run.data, run.search, run.seed)


def make_corpora(run: Run, tokenizers: tuple[Tokenizer, Tokenizer], report: Any) -> Any:
    """What the task learns from and is judged by; report: what `check` said."""
    return task_of(run).open_corpora(tokenizers, report, keep_text=run.tokenizer.dropout > 0)


def make_model(run: Run, source_vocab: int, target_vocab: int) -> nn.Module:
    """A model with the weights that the run's seed gives it."""
    torch.manual_seed(run.seed)
    plain = lookup(run.model.family, MODELS, "model family")(run.model, source_vocab, target_vocab)
    made: nn.Module = task_of(run).equip(plain)
    if run.training.gates.penalty:
        add_gates(made, run.training.gates.kinds)
    return made


def data_hashes(run: Run) -> dict[str, str]:
    """SHA-256 of every file that the run reads."""
    vectors = [] if run.training.vectors is None else [find_path(run.training.vectors)]
    return {str(file): content_hash(file) for file in [*task_of(run).files(), *vectors]}


def make_system(run: Run, models: Sequence[Any], tokenizers: tuple[Tokenizer, Tokenizer], device: torch.device) -> System:
    return System(models, *tokenizers, device, max_length=run.data.max_length)


def make_task(run: Run, model: nn.Module, tokenizers: tuple[Tokenizer, Tokenizer], corpora: Any) -> Any:
    device = next(model.parameters()).device
    return task_of(run).bind(corpora, make_system(run, [model], tokenizers, device), run.tokenizer.dropout)


def check(run: Run, say: Report) -> Any:
    """Look through the data before anything is done with it."""
    report = task_of(run).check()
    for line in report.lines():
        say(line)
    return report


class Translator(Predictor):
    """A trained model at work."""

    def translate(self, lines: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each line; options of `SearchConfig` may be given by name."""
        return [translation.text for translation in self.translations(lines, **search)]

    def translations(self, lines: Iterable[str], **search: Any) -> Iterator[Translation]:
        """As `translate`, one by one, with scores and n-best candidates."""
        if isinstance(lines, str):
            raise ConfigError(
                f"one text was given, {lines!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return translate(self.system, lines, self.search_by_name(search))

    def inspect(self, text: str, target: str | None = None, **search: Any) -> Inspection:
        """What was looked at in a text and its translation, or the given one; a notebook shows it, `save` keeps it."""
        facts = [self.run.model.family, self.checkpoint.parent.parent.name]
        return inspect(self.system, text, self.search_by_name(search), target, facts)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored | None]:
        return score_pairs(self.system, sources, targets)

    def evaluate(
        self,
        examples: Examples | tuple[Sequence[str], Sequence[str]],
        metrics: Sequence[str] = ("bleu", "chrf"),
        how: MetricOptions | None = None,
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
        return evaluate(self.system, examples_from(examples), self.search_by_name(search), metrics, how=how)


def examples_from(given: Examples | tuple[Sequence[str], Sequence[str]]) -> Examples:
    """Sources and references as lists; anything but two equally long lists of texts is an error."""
    sides = [] if isinstance(given, str) else list(given)
    if len(sides) != 2 or any(isinstance(side, str) for side in sides):
        raise ConfigError(
            f"{given!r:.60} was given to evaluate; expected (sources, references), two lists of texts",
            hint="translator.evaluate((sources, references))",
        )
    return Examples(*map(list, sides))


PREDICTORS: dict[str, type[Predictor]] = {"translation": Translator, "language": TextGenerator, "classification": Classifier}


def load(folder: str | os.PathLike[str], checkpoint: str | None = None, device: str | None = None) -> Any:
    """A run folder -> a `Translator`, or whoever does the run's task.

    Takes the best checkpoint, else the newest; or best, last, average, step-N by name."""
    path = Path(folder)
    chosen = retention.resolve(path, checkpoint)
    run, tokenizers = read_folder(path)
    with parameter_limit(shapes(chosen, inference_stem(chosen)), chosen):
        model = make_model(run, len(tokenizers[0]), len(tokenizers[1]))
    load_into(model, inference_weights(chosen), chosen)
    where = choose_device(device)
    share_cores()
    model = model.to(where).eval()
    return lookup(run.task.name, PREDICTORS, "task")(run, make_system(run, [model], tokenizers, where), chosen)


def load_translator(folder: Path, checkpoint: str | None = None, device: str | None = None) -> Translator:
    """As `load`, where nothing but a translator will do."""
    worker = load(folder, checkpoint, device)
    if not isinstance(worker, Translator):
        raise ConfigError(f"{folder} is a run of task {worker.run.task.name!r}; expected a run of 'translation'")
    return worker


def read_folder(path: Path) -> tuple[Run, tuple[Tokenizer, Tokenizer]]:
    """The config and the tokenizers of a run, as it was trained with them; without them it cannot be used."""
    check_files(path)
    try:
        return with_own_dictionary(read_run(path / CONFIG).config, path), load_tokenizers(path)
    except (ConfigError, DataError) as error:
        raise CheckpointError(
            f"run folder {path} is damaged: {error.args[0]}", hint="restore the file from a copy, or train the run again"
        ) from error


def load_ensemble(folders: Sequence[Path], checkpoint: str | None = None, device: str | None = None) -> Translator:
    """Several runs with one target vocabulary as one translator."""
    members = [load_translator(folder, checkpoint, device) for folder in folders]
    first = members[0]
    for folder, member in zip(folders, members, strict=True):
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(member.system, side).fingerprint != getattr(first.system, side).fingerprint:
                raise ConfigError(
                    f"{folder} has another {side.replace('_', ' ')} than {folders[0]}; an ensemble needs one vocabulary"
                )
    models = [member.model for member in members]
    tokenizers = first.system.source_tokenizer, first.system.target_tokenizer
    return Translator(first.run, make_system(first.run, models, tokenizers, first.system.device), first.checkpoint)


def with_own_dictionary(run: Run, folder: Path) -> Run:
    """The config of a run folder, whose dictionary is a file of that folder: it may not name any other file."""
    name = run.search.dictionary
    if name is None:
        return run
    if name != DICTIONARY:
        raise CheckpointError(
            f"{folder / CONFIG} names {name!r} as search.dictionary; expected {DICTIONARY!r}, in the run folder itself",
            hint=f"copy the dictionary to {folder / DICTIONARY} and write its name there",
        )
    return with_dictionary(run, str(folder / DICTIONARY))


def with_dictionary(run: Run, name: str) -> Run:
    """The same config with another name for its dictionary, if it has one."""
    if run.search.dictionary is None:
        return run
    return run.model_copy(update={"search": run.search.model_copy(update={"dictionary": name})})
