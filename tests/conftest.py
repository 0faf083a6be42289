"""Shared by all tests: one thread, fixed seeds, a temporary cache folder, and the models of the contract tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import call_for_members, set_seeds
from hypothesis import settings
from tiny import IMAGE_VARIANTS, PLAIN, VARIANTS, Pairs, by_family, each_value_once, make_pairs, tiny_model
from tiny_tasks import train_tiny_runs, write_tiny_recipe
from workshop import heed

from heedful.inspection.analyses import cost
from heedful.inspection.measures import hardware_limits
from heedful.inspection.measures.cost_report import layer_costs

torch.set_num_threads(1)  # models this small are three times faster so
settings.register_profile("heedful", deadline=None, derandomize=True)  # a busy machine is no failure, and a failure repeats
settings.load_profile("heedful")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Benchmarks that are not run are not imported: their libraries take seconds in every worker."""
    deselected = "not benchmark" in config.getoption("markexpr") and collection_path.suffix == ".py"
    return True if deselected and "pytestmark = pytest.mark.benchmark" in collection_path.read_text() else None


def pytest_collection_finish() -> None:
    """The modules and the thousands of tests are never garbage: do not search them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test with a group for each of its members."""
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    return call_for_members(pyfuncitem.obj, given) or None


@pytest.fixture(scope="session", autouse=True)
def _default_signal_handlers() -> None:
    """A shell starts background processes with SIGINT ignored, nohup with SIGHUP, and children inherit this."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


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


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A tiny run flushes 45 files and folders to the disk, milliseconds each. The descriptor must still be valid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _costs_of_layer_types() -> Iterator[None]:
    """Counted once for each size by the analysis, which compares the same layer types of the same size in many tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "layer_costs", cache(layer_costs))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_seeds_of_absent_devices() -> Iterator[None]:
    """`torch.manual_seed` formats the call stack, for the message of a later error, once for each kind of device that is not
    there: milliseconds, before every test and every update."""
    with pytest.MonkeyPatch.context() as patch:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(autouse=True)
def _seeds() -> None:
    set_seeds()


@pytest.fixture(params=by_family([*VARIANTS, *IMAGE_VARIANTS], tiny_model), ids=str)
def model(request: pytest.FixtureRequest) -> Any:
    """Every family; the test is called with each of its variants. Shared between tests: do not change it."""
    return request.param


@pytest.fixture(params=by_family([*PLAIN, *IMAGE_VARIANTS[:1]], tiny_model), ids=str)
def plain(request: pytest.FixtureRequest) -> Any:
    """Variants of positional encoding and norm only: for tests that take long."""
    return request.param


@pytest.fixture(params=by_family([*each_value_once(PLAIN), *IMAGE_VARIANTS[:1]], tiny_model), ids=str)
def searched(request: pytest.FixtureRequest) -> Any:
    """Every family and every positional encoding: for searches, whose operations on states contracts/test_stepping.py tests
    with all variants."""
    return request.param


@pytest.fixture
def pairs() -> Pairs:
    return make_pairs()


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run folder of each task by the task's name. Shared between tests: do not change them."""
    return train_tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, one for all tests: playwright cannot be started twice."""
    from studio.studio_pages import launch

    with launch() as opened:
        yield opened


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
