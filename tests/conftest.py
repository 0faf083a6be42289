"""Shared by all tests: one thread, fixed seeds, a temporary cache folder, and the models of the contract tests."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tiny import PLAIN, VARIANTS, Pairs, Variant, make_pairs, tiny_model
from tiny_tasks import train_tiny_runs, write_tiny_recipe
from workshop import heed

from heedful.inspection.measures import hardware_limits
from heedful.nn.model import SequenceModel

torch.set_num_threads(1)  # models this small are three times faster so
settings.register_profile("heedful", deadline=None, derandomize=True)  # a busy machine is no failure, and a failure repeats
settings.load_profile("heedful")


def pytest_collection_finish() -> None:
    """The modules and the thousands of tests are never garbage: do not search them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _limits_of_the_machine() -> Iterator[None]:
    """Measured once: a measurement takes a second, and no two are equal, so that any two costs would differ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware_limits, "measure", cache(hardware_limits.measure))
        yield


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest) -> SequenceModel:
    """Every family in every variant. Shared between tests: do not change it."""
    variant: Variant = request.param
    return tiny_model(variant)


@pytest.fixture(params=PLAIN, ids=str)
def plain(request: pytest.FixtureRequest) -> SequenceModel:
    """Variants of positional encoding and norm only: for tests that take long."""
    variant: Variant = request.param
    return tiny_model(variant)


@pytest.fixture
def pairs() -> Pairs:
    return make_pairs()


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run folder of each task by the task's name. Shared between tests: do not change them."""
    return train_tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a classifier that pools the hidden states of an encoder by attention."""
    folder = tmp_path_factory.mktemp("encoder")
    model = 'model={family="bert", dim=16, layers=2, heads=2}'
    recipe = write_tiny_recipe("classification", folder)
    assert heed("train", recipe, model, "task.pooling=attention", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="session")
def tiny_several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a classifier with any number of labels per text."""
    folder = tmp_path_factory.mktemp("several")
    recipe = write_tiny_recipe("classification", folder)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.tsv").write_text("red|round\tthe cat sees\nred\ta dog runs\n\tthe dog\n" * 8)
    model, labels = 'model={family="bert", dim=16, layers=2, heads=2}', 'task.labels=["red", "round", "flat"]'
    options = ("task.multi_label=true", "data.label_separator=|", "task.pooling=attention")
    assert heed("train", recipe, model, labels, *options, "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="session")
def tiny_numeric(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a tagger of numeric sequences."""
    folder = tmp_path_factory.mktemp("numeric")
    recipe = write_tiny_recipe("tagging", folder)
    for split in ("train", "valid", "test"):
        (folder / f"tagged-{split}.tsv").write_text("1\t2\tup\n-1\t0\tdown\n3\t0.5\tup\n\n2\t2\tup\n-2\t1\tdown\n\n" * 6)
    model = 'model={family="encoder", dim=16, layers=["self-attention"], heads=2, position="sinusoidal", features=2}'
    assert heed("train", recipe, model, "data.numeric=true", "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"
