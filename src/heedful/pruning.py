"""From a run to a smaller one: heads are taken out for good, and what is left is a run folder like any other.

    made = prune("runs/gated", "runs/small")                                    what its gates have closed
    made = prune("runs/any", "runs/small", Choice({"encoder": 6}, by="gradient"))    all but the six best

It translates, evaluates and goes on training. The optimizer begins anew; step, tokens seen and the place in the data are
those of the run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful import build
from heedful.card import model_card
from heedful.config import Run, as_toml
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.inspection.head_pruning import Kept, best_heads, heads_left, open_heads, shrink
from heedful.inspection.importance import LossFunction, ablations, gate_gradients, within_layer
from heedful.nn.gates import gates
from heedful.predictor import Predictor
from heedful.schema import plain
from heedful.storage.reading import read_bytes
from heedful.storage.writing import replace_bytes, replace_text
from heedful.studies.heads import add_by_name
from heedful.tasks.evaluate_translations import evaluate
from heedful.tasks.translation import TranslationConfig
from heedful.training import checkpoint, environment, facts, retention, run_folder
from heedful.training.saved_state import load_saved
from heedful.training.train_state import TrainState
from heedful.training_losses import training_losses

RANKINGS: dict[str, Callable[[nn.Module, LossFunction], dict[str, Tensor]]] = {
    "gradient": gate_gradients,
    "ablation": ablations,
}


@dataclass(frozen=True)
class Choice:
    """What stays: of each named kind so many heads, the best by a ranking over so many training sentences, blocks of text or
    examples; of the others all. Without any kind: whatever gates have not closed."""

    keep: Mapping[str, int] = field(default_factory=dict)
    by: str = "gradient"
    sentences: int = 1000


class Pruned(NamedTuple):
    """What was made of a model."""

    run: Path
    heads: dict[str, tuple[int, ...]]  # that are left, by kind and layer
    heads_before: dict[str, tuple[int, ...]]
    parameters: int
    parameters_before: int
    figures: dict[str, float]  # on the validation data
    sentences: int | None  # of that data, where it is sentences to be translated
    translated: int | None  # of those, the first so many, by which translations are judged


class Judged(NamedTuple):
    figures: dict[str, float]
    sentences: int | None
    translated: int | None
    signatures: dict[str, str]


@dataclass
class Made:
    """What its card is written from."""

    model: nn.Module
    task: Any
    train_state: TrainState


def prune(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    choice: Choice | None = None,
    *,
    which: str | None = None,
    device: str | None = None,
) -> Pruned:
    """Write a run folder `out` with fewer heads. Taken is the last checkpoint of a run with gates, which close as it goes
    on, and else the best; or the one that is named."""
    path, folder, choice = Path(run), Path(out), choice or Choice()
    refuse_taken(folder)
    gated = bool(build.read_folder(path)[0].training.gates.penalty) if path.is_dir() else False
    worker: Predictor = build.load(path, which or ("last" if gated else None), device)
    system, config, model = worker.system, worker.run, module_of(worker)
    before = config.model.heads_by_kind
    kept = choose(worker, choice)
    left = heads_left(kept, before)
    smaller = without_heads(config, left)
    small = build.make_model(smaller, len(system.source_tokenizer), len(system.target_tokenizer))
    build.load_into(small, {name: weight.cpu() for name, weight in shrink(model, kept).items()}, worker.checkpoint)
    small = small.to(system.device).eval()
    tokenizers = system.source_tokenizer, system.target_tokenizer
    made_system = build.make_system(smaller, [small], tokenizers, system.device)
    found = judged(type(worker)(smaller, made_system, worker.checkpoint))
    with run_folder.lock(folder):
        made = Made(small, build.task_of(smaller), train_state_of(path, worker.checkpoint))
        for name in (*facts.TOKENIZERS, facts.DICTIONARY):
            if (path / name).exists():
                replace_bytes(folder / name, read_bytes(path / name))
        origin = {"run": str(path), "checkpoint": worker.checkpoint.name, "heads": before, "left": left}
        known = facts.read_facts(path)
        facts.write_facts(folder, {"data": known["data"], "environment": known["environment"], "pruned": origin})
        write(smaller, folder, made, found)
    return Pruned(folder, left, before, size(small), size(model), found.figures, found.sentences, found.translated)


def refuse_taken(folder: Path) -> None:
    """What was begun here and broken off may be begun again; anything else is not for us to write into."""
    run_folder.refuse_name(folder)
    begun = (folder / "run.json").exists()
    if not begun and not (folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir())):
        return
    if not begun or retention.steps(folder / "checkpoints"):
        what = "is a run already" if begun else "exists and is not empty"
        raise ConfigError(f"{folder} {what}", hint="give the smaller run a folder of its own with --out")


def train_state_of(run: Path, taken: Path) -> TrainState:
    """How far the run had come; of one that was given away with an average alone, only the step is known."""
    last, _ = retention.newest(run / "checkpoints")
    saved = load_saved(last or taken)
    return saved.train_state or TrainState(step=saved.step or 0)


def module_of(worker: Predictor) -> nn.Module:
    model = worker.model
    assert isinstance(model, nn.Module), "models are modules"
    return model


def judged(worker: Any) -> Judged:
    """On the validation data, as training would."""
    if not isinstance(worker, build.Translator):
        return Judged(worker.evaluate("valid"), None, None, {})
    data, asked = worker.run.data, worker.run.task
    assert isinstance(asked, TranslationConfig), "whoever translates has a run of translation"
    examples = build.examples_of(splits_of(data).valid, data.max_ratio)
    found = evaluate(worker.system, examples, worker.run.search, asked.validation_metrics, asked.validation_sentences)
    signatures = {name: score.signature for name, score in found.scores.items()}
    return Judged(found.figures, len(examples.sources), len(found.translations), signatures)


def choose(worker: Predictor, choice: Choice) -> Kept:
    model = module_of(worker)
    if not choice.keep:
        if not gates(model):
            raise ConfigError(
                "the run has no gates that could say which heads go",
                hint="say how many to keep, --keep encoder=6, or train with training.gates.penalty",
            )
        return open_heads(model)
    for kind in choice.keep:
        lookup(kind, worker.run.model.heads_by_kind, "kind of heads")
    score = lookup(choice.by, RANKINGS, "ranking")
    scores: dict[str, Tensor] = {}
    for surprise in training_losses(worker, choice.sentences):
        scores = add_by_name(scores, score(model, surprise))
    by_attention: dict[str, Tensor] = {}
    for name, one in scores.items():
        by_attention[attention_of(name)] = by_attention.get(attention_of(name), torch.zeros_like(one)) + one
    return best_heads(model, {name: within_layer(one) for name, one in by_attention.items()}, choice.keep)


def attention_of(tap: str) -> str:
    """Whose weights the tap of this name hears; a decoder alone reads a source with the heads with which it speaks."""
    return re.sub(r"\.reading$", ".self_attention", tap.removesuffix(".weights"))


def without_heads(config: Run, left: Mapping[str, tuple[int, ...]]) -> Run:
    """The config of the smaller run, which has no gates and begins with nobody's weights."""
    tree: dict[str, Any] = plain(config)
    tree["model"] |= config.model.with_heads(left)
    tree["training"] = {name: value for name, value in tree["training"].items() if name not in ("gates", "init")}
    return Run.model_validate(tree)


def write(config: Run, folder: Path, made: Made, found: Judged) -> None:
    """The folder as training would leave it."""
    made.train_state.best = [(made.train_state.step, found.figures[config.training.metric])]
    made.train_state.stale, made.train_state.guard = 0, {}
    weights = made.model.state_dict()
    tensors = {"model": weights, "optimizer": {}} | ({"average": weights} if config.training.average == "ema" else {})
    state = {
        "train_state": made.train_state.as_dict(),
        "metrics": found.figures,
        "signatures": found.signatures,
        "environment": environment.describe(),
    }
    replace_text(folder / facts.CONFIG, as_toml(build.with_dictionary(config, facts.DICTIONARY)))
    facts.record_files(folder)
    saved = checkpoint.save(folder / "checkpoints", made.train_state.step, tensors, state)
    retention.point_best(folder / "checkpoints", saved.name)
    replace_text(folder / "README.md", model_card(config, folder, made))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
