"""Load a run folder as a predictor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from heedful.config.given import OVERRIDE
from heedful.config.read import Settings
from heedful.errors import CheckpointError
from heedful.runs.build import choose_device, load_tokenizers, make_model, make_system
from heedful.runs.config import Run, read_run
from heedful.runs.core_sharing import share_cores
from heedful.runs.recipes import own_folder
from heedful.tasks import find_task
from heedful.tasks.base import Tokenizers
from heedful.tasks.predictor import Predictor
from heedful.training import retention
from heedful.training.averaging import inference_stem, inference_weights
from heedful.training.checkpoint import shapes
from heedful.training.facts import CHECKPOINTS, CONFIG, DICTIONARY, check_files, damage_as_checkpoint_error
from heedful.training.facts import NAME as FACTS
from heedful.training.readable import exists
from heedful.training.weights import load_into, parameter_limit


def load(
    folder: str | os.PathLike[str], checkpoint: str | None = None, device: str | None = None, precision: str | None = None
) -> Predictor:
    """Load a run folder as a `Translator`, `TextGenerator` or `Classifier`, depending on its task.

    checkpoint: best, last, average or step-N; default: the best, else the newest. precision: a copy for
    inference only, in fp32, bf16, or on a CPU int8; default: the weights as trained.

    >>> predictor = heedful.load(run)
    >>> predictor.predict("w1 w2") == predictor.predict(["w1 w2"])[0]
    True
    """
    path = Path(folder)
    chosen = retention.resolve(path, checkpoint)
    run, tokenizers = read_folder(path)
    with parameter_limit(shapes(chosen, inference_stem(chosen)), chosen):
        model = make_model(run, len(tokenizers[0]), len(tokenizers[1]))
    load_into(model, inference_weights(chosen), chosen)
    where = choose_device(device)
    share_cores()
    model = model.to(where).eval()
    predictor = find_task(run.task.name).predictor(run, make_system(run, [model], tokenizers, where), chosen)
    return predictor if precision is None else predictor.at(precision)


def read_folder(path: Path) -> tuple[Run, Tokenizers]:
    """The config and the tokenizers of a run folder."""
    check_files(path)
    with damage_as_checkpoint_error(path):
        return with_local_dictionary(read_run(path / CONFIG).config, path), load_tokenizers(path)


def read_recipe(path: Path, overrides: Sequence[str] = (), *, origin: str = OVERRIDE) -> Settings[Run]:
    """Read a recipe, or the config of a run folder, with overrides; a damaged run folder is a CheckpointError. Paths in a
    recipe of the user are relative to its folder."""
    if path.name == CONFIG and exists(path.with_name(FACTS)):
        if retention.steps(path.with_name(CHECKPOINTS)):  # before its first checkpoint, a run has no checksums
            check_files(path.parent)
        with damage_as_checkpoint_error(path.parent):
            read_run(path)
    return read_run(path, overrides, origin=origin, beside=own_folder(path))


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
