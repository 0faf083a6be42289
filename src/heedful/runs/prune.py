"""Pruning: remove attention heads of a trained model and write the smaller model as a new run folder.

    prune("runs/gated", "runs/small")                                                      heads whose gates are closed
    prune("runs/any", "runs/small", HeadSelection({"encoder": 6}, by="gradient"))          all but the best six

The new run can translate, be evaluated and continue training: with a new optimizer state, and the step, token count and
position in the data of the original run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from heedful.config.base import plain
from heedful.errors import ConfigError, lookup
from heedful.inspection.measures.head_pruning import Kept, best_heads, head_scores, heads_left, open_heads, shrink
from heedful.inspection.measures.importance import LossFunction, ablations, gate_gradients
from heedful.nn.gates import gates
from heedful.nn.model import Model
from heedful.runs import build
from heedful.runs.card import CARD, model_card
from heedful.runs.config import Run, run_as_toml
from heedful.runs.load import load, read_folder, with_dictionary
from heedful.storage.reading import read_bytes
from heedful.storage.writing import replace_bytes, replace_text
from heedful.tasks.predictor import Predictor, ValidationResult
from heedful.training import environment, facts, retention, run_folder
from heedful.training.checkpoint import save as save_checkpoint
from heedful.training.saved_state import load_saved
from heedful.training.train_state import TrainState
from heedful.training.weights import load_into

RANKINGS: dict[str, Callable[[Model, LossFunction], dict[str, Tensor]]] = {
    "gradient": gate_gradients,
    "ablation": ablations,
}


@dataclass(frozen=True)
class HeadSelection:
    """The heads to keep: for each kind in `keep` this many, the best by a ranking; of other kinds all. With an empty `keep`:
    the heads whose gates are open."""

    keep: Mapping[str, int] = field(default_factory=dict)
    by: str = "gradient"  # a key of RANKINGS
    sentences: int = 1000  # training sentences, blocks of text or examples that the ranking is computed on


class Pruned(NamedTuple):
    """The result of pruning."""

    run: Path
    heads: dict[str, tuple[int, ...]]  # remaining heads of each layer, by kind
    heads_before: dict[str, tuple[int, ...]]
    parameters: int
    parameters_before: int
    figures: dict[str, float]  # on the validation data
    sentences: int | None  # number of validation sentences; None unless the task is translation
    translated: int | None  # number of them, from the first, that were translated for the metrics


@dataclass
class PrunedModel:
    """What the model card is written from."""

    model: Model
    train_state: TrainState


def prune(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    selection: HeadSelection | None = None,
    *,
    checkpoint: str | None = None,
    device: str | None = None,
) -> Pruned:
    """Write a run folder `out` with fewer heads.

    checkpoint: default: the last of a run with gates, which close in the course of training, else the best."""
    path, folder, selection = Path(run), Path(out), selection or HeadSelection()
    require_free_folder(folder)
    gated = bool(read_folder(path)[0].training.gates.penalty) if path.is_dir() else False
    predictor = load(path, checkpoint or ("last" if gated else None), device)
    system, config, model = predictor.system, predictor.run, predictor.model
    before = config.model.heads_by_kind
    kept = select_heads(predictor, selection)
    left = heads_left(model, kept, before)
    smaller = shrink_config(read_folder(path)[0], left)
    small = build.make_model(smaller, len(system.source_tokenizer), len(system.target_tokenizer))
    load_into(small, {name: weight.cpu() for name, weight in shrink(model, kept).items()}, predictor.checkpoint)
    small = small.to(system.device).eval()
    tokenizers = system.source_tokenizer, system.target_tokenizer
    small_system = build.make_system(smaller, [small], tokenizers, system.device)
    result = type(predictor)(smaller, small_system, predictor.checkpoint).validate()
    with run_folder.lock(folder):
        pruned = PrunedModel(small, last_train_state(path, predictor.checkpoint))
        for name in (*facts.TOKENIZERS, facts.DICTIONARY):
            if (path / name).exists():
                replace_bytes(folder / name, read_bytes(path / name))
        origin = {"run": str(path), "checkpoint": predictor.checkpoint.name, "heads": before, "left": left}
        known = facts.read_facts(path)
        facts.write_facts(folder, {"data": known["data"], "environment": known["environment"], "pruned": origin})
        write_run(smaller, folder, pruned, result)
    return Pruned(
        folder,
        left,
        before,
        count_parameters(small),
        count_parameters(model),
        result.figures,
        result.sentences,
        result.translated,
    )


def require_free_folder(folder: Path) -> None:
    """Raise an error if the folder is not empty, except by an interrupted pruning, which may be repeated."""
    run_folder.refuse_name(folder)
    is_run = (folder / "run.json").exists()
    if not is_run and not (folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir())):
        return
    if not is_run or retention.steps(folder / "checkpoints"):
        found = "which is a run already" if is_run else "which is not empty"
        raise ConfigError(
            f"--out: given {folder}, {found}; expected a new or empty folder",
            hint="choose another folder for the smaller run with --out",
        )


def last_train_state(run: Path, checkpoint: Path) -> TrainState:
    """Return the newest training state of the run; for a folder with only averaged weights, one with only the step."""
    last, _ = retention.newest(run / "checkpoints")
    saved = load_saved(last or checkpoint)
    return saved.train_state or TrainState(step=saved.step or 0)


def select_heads(predictor: Predictor, selection: HeadSelection) -> Kept:
    """The heads to keep in each attention layer."""
    model = predictor.model
    if not selection.keep:
        if not gates(model):
            raise ConfigError(
                "the run has no gates that select the heads to remove",
                hint="set the number of heads to keep, --keep encoder=6, or train with training.gates.penalty",
            )
        return open_heads(model)
    for kind in selection.keep:
        lookup(kind, predictor.run.model.heads_by_kind, "kind of heads")
    score = lookup(selection.by, RANKINGS, "ranking")
    scores = head_scores(model, predictor.training_losses(selection.sentences), score)
    return best_heads(model, scores, selection.keep)


def shrink_config(config: Run, left: Mapping[str, tuple[int, ...]]) -> Run:
    """The config of the smaller run, without gates and training.init."""
    tree: dict[str, Any] = plain(config)
    tree["model"] |= config.model.with_heads(left)
    tree["training"] = {name: value for name, value in tree["training"].items() if name not in ("gates", "init")}
    return Run.model_validate(tree)


def write_run(config: Run, folder: Path, pruned: PrunedModel, result: ValidationResult) -> None:
    """Write the run folder as training would."""
    pruned.train_state.best = [(pruned.train_state.step, result.figures[config.training.metric])]
    pruned.train_state.stale, pruned.train_state.guard = 0, {}
    weights = pruned.model.state_dict()
    tensors = {"model": weights, "optimizer": {}} | ({"average": weights} if config.training.average == "ema" else {})
    state = {
        "train_state": pruned.train_state.as_dict(),
        "metrics": result.figures,
        "signatures": result.signatures,
        "environment": environment.describe(),
    }
    replace_text(folder / facts.CONFIG, run_as_toml(with_dictionary(config, facts.DICTIONARY)))
    facts.record_files(folder)
    saved = save_checkpoint(folder / "checkpoints", pruned.train_state.step, tensors, state)
    retention.point_best(folder / "checkpoints", saved.name)
    replace_text(folder / CARD, model_card(config, folder, pruned))


def count_parameters(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
