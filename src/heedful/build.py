"""The one place where names become objects: from a config to tokenizers, stores, a model and a task; from a run folder
back to a model that translates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.config import Run, read_run
from heedful.data.check import check_data
from heedful.data.encode import StoreOptions, content_hash, open_store
from heedful.data.pairs import pairs, sentences
from heedful.data.report import CheckReport
from heedful.data.sources import CorpusConfig, files_of
from heedful.data.splits import splits_of
from heedful.data.store import JoinedStore
from heedful.errors import CheckpointError, ConfigError, DataError, lookup
from heedful.models import MODELS, SequenceModel
from heedful.schema import plain
from heedful.search import SearchConfig
from heedful.search.hypothesis import OPTIONS_OF
from heedful.settings import read_settings
from heedful.settings.toml import write_value
from heedful.tasks import TASKS
from heedful.tasks.evaluating import Evaluation, Examples, How, Scored, evaluate, score_pairs
from heedful.tasks.translating import System, Translation, translate
from heedful.tasks.translation import Corpora
from heedful.text.learning import train_tokenizer
from heedful.text.tokenizer import Tokenizer
from heedful.training import retention, run_folder
from heedful.training.averaging import inference_weights

Say = Callable[[str], None]


def choose_device(name: str | None = None) -> torch.device:
    """The named device, or the best there is."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name is None:
        return torch.device("cuda" if there["cuda"] else "cpu")
    kind = name.split(":")[0]
    if kind == "gpu":
        raise ConfigError("device 'gpu' was asked for; expected one of: cpu, cuda, mps", hint="did you mean 'cuda'?")
    if not lookup(kind, there, "device"):
        known = ", ".join(kind for kind, found in there.items() if found)
        raise ConfigError(f"device {name!r} was asked for, but this machine has: {known}")
    return torch.device(name)


def make_tokenizers(run: Run, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Those of the run folder, or new ones trained on the training text and stored there."""
    shared, source, target = (folder / f"{side}tokenizer.json" for side in ("", "source.", "target."))
    corpora = splits_of(run.data).train
    tags = list(dict.fromkeys(corpus.tag for corpus in corpora if corpus.tag))

    def made(path: Path, lines: Callable[[], Iterable[str]], tags: Sequence[str]) -> Tokenizer:
        if not path.exists():
            train_tokenizer(run.tokenizer, lines(), tags).save(path)
        return Tokenizer.load(path)

    def both() -> Iterator[str]:
        yield from sentences(corpora, "source")
        yield from sentences(corpora, "target")

    if run.tokenizer.shared:
        tokenizer = made(shared, both, tags)
        return tokenizer, tokenizer
    return (
        made(source, lambda: sentences(corpora, "source"), tags),
        made(target, lambda: sentences(corpora, "target"), []),
    )


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    shared = folder / "tokenizer.json"
    if shared.exists():
        tokenizer = Tokenizer.load(shared)
        return tokenizer, tokenizer
    if not (folder / "source.tokenizer.json").exists():
        return Tokenizer.load(shared), Tokenizer.load(shared)  # says that it is missing
    return Tokenizer.load(folder / "source.tokenizer.json"), Tokenizer.load(folder / "target.tokenizer.json")


def make_corpora(run: Run, tokenizers: tuple[Tokenizer, Tokenizer], report: CheckReport) -> Corpora:
    splits = splits_of(run.data)
    options = StoreOptions(run.data.max_length, run.data.max_ratio, keep_text=run.tokenizer.dropout > 0)
    stores = [
        open_store(corpus, tokenizers, options, dropped=dropped)
        for corpus, dropped in zip(splits.train, report.dropped("train"), strict=True)
    ]
    weights = tuple(corpus.weight for corpus in splits.train)
    return Corpora(JoinedStore(stores), weights, examples_of(splits.valid, run.data.max_ratio))


def examples_of(corpora: Iterable[CorpusConfig], max_ratio: float) -> Examples:
    found = [pair for corpus in corpora for pair in pairs(corpus, max_ratio=max_ratio)]
    return Examples([pair.source for pair in found], [pair.target for pair in found])


def make_model(run: Run, source_vocab: int, target_vocab: int) -> nn.Module:
    """A model with the weights that the run's seed gives it."""
    torch.manual_seed(run.seed)
    made: nn.Module = lookup(run.model.family, MODELS, "model family")(run.model, source_vocab, target_vocab)
    return made


def data_hashes(run: Run) -> dict[str, str]:
    """SHA-256 of every file that the run reads."""
    files = [file for split in splits_of(run.data) for corpus in split for file in files_of(corpus)]
    return {str(file): content_hash(file) for file in files}


def make_system(run: Run, models: Sequence[Any], tokenizers: tuple[Tokenizer, Tokenizer], device: torch.device) -> System:
    return System(models, *tokenizers, device, max_length=run.data.max_length)


def make_task(run: Run, model: nn.Module, tokenizers: tuple[Tokenizer, Tokenizer], corpora: Corpora) -> Any:
    device = next(model.parameters()).device
    task = lookup(run.task.name, TASKS, "task")(run.task, run.data, run.search, run.seed)
    return task.bind(corpora, make_system(run, [model], tokenizers, device), run.tokenizer.dropout)


def check(run: Run, say: Say) -> CheckReport:
    report = check_data(run.data)
    for line in report.lines():
        say(line)
    return report


class Translator:
    """A trained model at work."""

    def __init__(self, run: Run, system: System, checkpoint: Path) -> None:
        self.run, self.system, self.checkpoint = run, system, checkpoint

    @property
    def model(self) -> SequenceModel:
        return self.system.models[0]

    def search(self, changes: Sequence[str] = ()) -> SearchConfig:
        """The run's search with some options changed ("beam=5"); another method begins with its own defaults."""
        given = dict(change.split("=", 1) for change in changes if "=" in change)
        own = plain(self.run.search)
        if given.get("method", self.run.search.method).strip("\"'") != self.run.search.method:
            own = {name: value for name, value in own.items() if name not in OPTIONS_OF.get(self.run.search.method, ())}
        kept = [f"{name}={write_value(value)}" for name, value in own.items() if value is not None]
        return read_settings(SearchConfig, None, [*kept, *changes]).config

    def translate(self, lines: Sequence[str], **search: Any) -> list[str]:
        """The best translation of each line; options of `SearchConfig` may be given by name."""
        return [translation.text for translation in self.translations(lines, **search)]

    def translations(self, lines: Iterable[str], **search: Any) -> Iterator[Translation]:
        """As `translate`, one by one, with scores and n-best candidates."""
        if isinstance(lines, str):
            raise ConfigError(
                f"one text was given, {lines!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return translate(self.system, lines, self.search(as_changes(search)))

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored | None]:
        return score_pairs(self.system, sources, targets)

    def evaluate(
        self, examples: Examples, metrics: Sequence[str] = ("bleu", "chrf"), how: How | None = None, **search: Any
    ) -> Evaluation:
        """Loss, perplexity and metrics on (sources, references); options of `SearchConfig` may be given by name."""
        return evaluate(self.system, examples, self.search(as_changes(search)), metrics, how=how)


def as_changes(options: dict[str, Any]) -> list[str]:
    """{"beam": 5} -> ["beam=5"]."""
    return [f"{name}={write_value(value)}" for name, value in options.items()]


def load(folder: str | os.PathLike[str], checkpoint: str | None = None, device: str | None = None) -> Translator:
    """A run folder -> a translator. Takes the best checkpoint, else the newest; or best, last, average, step-N by name."""
    path = Path(folder)
    chosen = retention.resolve(path, checkpoint)
    run_folder.read_facts(path)
    run, tokenizers = read_folder(path)
    model = make_model(run, len(tokenizers[0]), len(tokenizers[1]))
    put_weights(model, inference_weights(chosen), chosen)
    where = choose_device(device)
    model = model.to(where).eval()
    return Translator(run, make_system(run, [model], tokenizers, where), chosen)


def read_folder(path: Path) -> tuple[Run, tuple[Tokenizer, Tokenizer]]:
    """The config and the tokenizers of a run; without them it cannot be used."""
    try:
        return read_run(path / "config.toml").config, load_tokenizers(path)
    except (ConfigError, DataError) as error:
        raise CheckpointError(
            f"run folder {path} is damaged: {error.args[0]}", hint="restore the file from a copy, or train the run again"
        ) from error


def load_ensemble(folders: Sequence[Path], checkpoint: str | None = None, device: str | None = None) -> Translator:
    """Several runs with one target vocabulary as one translator."""
    members = [load(folder, checkpoint, device) for folder in folders]
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


def put_weights(model: nn.Module, weights: dict[str, torch.Tensor], where: Path) -> None:
    """Load weights by name; what does not fit is named."""
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is not in the model" for name in weights.keys() - own.keys()]
    wrong += [
        f"{name} is {tuple(weights[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if own[name].shape != weights[name].shape
    ]
    if wrong:
        raise CheckpointError(f"the weights of {where} do not fit the model: {'; '.join(sorted(wrong)[:5])}")
    model.load_state_dict(weights)
