"""An update or a validation that several ranks share equals that of one process, for every task and every family."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
import torch
from ranked import exit_codes, start_ranks
from tiny import tiny_config
from tiny_tasks import write_tiny_recipe
from torch.testing import assert_close

from heedful.config.base import plain
from heedful.config.toml import write_value
from heedful.models import ENCODERS, MODELS
from heedful.runs import auto, build
from heedful.runs.config import read_run
from heedful.runs.train import make_trainer, prepare_data
from heedful.tasks import TASKS, find_task
from heedful.tasks.system import System
from heedful.training.loop import Trainer
from heedful.training.progress import NoProgress
from heedful.training.ranks import Group, Ranks
from heedful.training.update import backward

RANKS = 3


class OneOf(Ranks):
    """A rank that exchanges nothing: gradients of all ranks are added in one process."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def tiny_trainer(task: str, folder: Path, *overrides: str, ranks: Ranks | None = None) -> Trainer:
    """The trainer of a tiny run, with dropout turned off."""
    config = read_run(write_tiny_recipe(task, folder), list(overrides)).config
    device = torch.device("cpu")
    config = auto.resolve(config, device)
    data = build.data_of(config)
    encoded = prepare_data(config, folder, data, data.check())
    trainer = make_trainer(config, folder, *encoded, device, NoProgress(folder / "metrics.jsonl", report_every=1), ranks)
    trainer.model.eval()
    return trainer


def first_batches(trainer: Trainer, count: int) -> list[Any]:
    with closing(trainer.task.stream(0, 0)) as stream:
        return [next(stream).batch for _ in range(count)]


def gradient(
    trainer: Trainer, batches: list[Any], ranks: list[Ranks], parts: int
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The sums over ranks of the gradients and of the reported losses."""
    trainer.model.zero_grad()
    losses: dict[str, float] = {}
    for rank in ranks:
        report = backward(trainer.gradients._replace(ranks=rank), batches, parts, seed=1, step=1, scale=1.0)
        for name, loss in report.items():
            for kind, value in (("total", loss.total), ("count", loss.count)):
                losses[f"{name} {kind}"] = losses.get(f"{name} {kind}", 0.0) + float(value)
    named = {name: parameter.grad for name, parameter in trainer.model.named_parameters()}
    return {name: grad.clone() for name, grad in named.items() if grad is not None}, losses


TWO_LOSSES = {"masked": ["task.next_sentence=true"], "classification": ["task.auxiliary=0.5"]}  # with counts of their own


@pytest.mark.parametrize("task", TASKS)
def test_the_gradients_of_all_ranks_add_up_to_that_of_the_batch(task: str, tmp_path: Path) -> None:
    trainer = tiny_trainer(task, tmp_path, *TWO_LOSSES.get(task, []))
    batches = first_batches(trainer, 2)
    parts = RANKS if find_task(task).config.compares_rows else 1  # its examples are compared within their part
    whole, whole_losses = gradient(trainer, batches, [Ranks()], parts)
    shared, shared_losses = gradient(trainer, batches, [OneOf(rank, RANKS) for rank in range(RANKS)], 1)
    is_one_graph = task == "node_classification"  # which is not cut: the other ranks have no share of it
    assert is_one_graph or len(trainer.task.split(batches[0], RANKS)) > 1
    assert any(bool(grad.any()) for grad in whole.values())
    assert shared.keys() == whole.keys()
    assert_close(shared, whole, atol=1e-6, rtol=1e-4)
    assert shared_losses == pytest.approx(whole_losses, rel=1e-5)


def first_step(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The whole weights after one update."""
    trainer.model.eval()  # without dropout
    with closing(trainer.task.stream(0, 0)) as stream:
        trainer.update([next(stream), next(stream)])
    weights = trainer.weights.state_dict()
    return dict(weights) if trainer.shards is None else trainer.shards.gather(weights)


SMALL_BATCHES = (
    "image_classification.evaluate.BATCH",
    "forecasting.evaluate.CHUNK",
    "decisions.predictor.WINDOWS",
    "series_classification.evaluate.BATCH_STEPS",
)


def validate_tasks(folder: Path, ranks: Ranks) -> dict[str, tuple[dict[str, float], int]]:
    """The metrics of untrained models of all tasks, and the number of batches that this rank computes."""
    results, computed = {}, 0
    shared_map = ranks.map

    def counting_map(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        def count(item: Any) -> Any:
            nonlocal computed
            computed += 1
            return function(item)

        return shared_map(count, items)

    ranks.map = counting_map  # type: ignore[method-assign]
    with ExitStack() as stack:
        stack.enter_context(patch.object(System, "batch_tokens", PropertyMock(return_value=40)))
        for name in SMALL_BATCHES:
            stack.enter_context(patch(f"heedful.tasks.{name}", 4))
        for task in TASKS:
            where, computed = folder / f"{task}-{ranks.rank}-of-{ranks.size}", 0
            where.mkdir()
            ranks.sharded = task == "translation" and ranks.exchanges  # which validates a copy with whole weights
            trainer = tiny_trainer(task, where, ranks=ranks)
            results[task] = dict(trainer.score().metrics), computed
            if trainer.shards is not None:
                weights = trainer.shards.unsharded.model.parameters()
                assert not any(weight.numel() for weight in weights), "whole weights stay in memory after a validation"
    return results


@pytest.mark.parametrize("count", [2, RANKS])
def test_a_validation_that_is_spread_over_ranks_has_the_same_metrics(count: int, tmp_path: Path) -> None:
    def validate() -> None:
        group = Group(torch.device("cpu"))
        (tmp_path / f"{group.rank}.json").write_text(json.dumps(validate_tasks(tmp_path, group)))

    assert exit_codes(start_ranks(count, validate)) == [0] * count
    alone = validate_tasks(tmp_path, Ranks())
    shared = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(count)]
    for task, (metrics, batches) in alone.items():
        assert all(one[task][0] == metrics for one in shared), task
        assert sum(one[task][1] for one in shared) >= batches > 0
        if task != "node_classification":  # which has one graph
            assert max(one[task][1] for one in shared) < batches


SUBTRACTED = ["training.optimizer={name='sgd'}", "training.schedule={name='constant', learning_rate=1.0, warmup=1}"]
TASK_OF = {"encoder-decoder": "translation", "decoder": "language", "encoder": "classification"}


def compare_sharded(folder: Path) -> None:
    """Called on every rank: update every family and every task with sharded weights, and on rank 0 also alone."""
    group = Group(torch.device("cpu"), sharded=True)
    wrong: dict[str, float] = {}
    cases: dict[str, tuple[str, list[str]]] = {  # name -> task, overrides
        task: (task, []) for task in TASKS if not find_task(task).config.compares_rows
    }
    for family in [*MODELS, *ENCODERS]:
        config: Any = tiny_config(family, {})
        cases[family] = TASK_OF[config.architecture], [f"model={write_value(plain(config) | {'family': family})}"]
    for name, (task, options) in cases.items():
        where = folder / f"{name}-{group.rank}"
        where.mkdir()
        overrides = [*SUBTRACTED, *options]
        sharded = first_step(tiny_trainer(task, where, "training.distributed=fsdp", *overrides, ranks=group))
        if group.first:
            trainer = tiny_trainer(task, where, *overrides)
            initial = {key: weight.clone() for key, weight in trainer.model.state_dict().items()}
            alone = first_step(trainer)
            assert sum(float((alone[key] - weight).norm()) for key, weight in initial.items()) > 0.01, name
            wrong |= {
                f"{name} {key}": float((sharded[key] - weight).abs().max())
                for key, weight in alone.items()
                if not torch.allclose(sharded[key], weight, atol=1e-5, rtol=1e-5)
            }
    assert not wrong, wrong


def five_updates(trainer: Trainer) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of five updates without dropout, and the whole weights after them."""
    trainer.model.eval()
    losses = []
    with closing(trainer.task.stream(0, 0)) as stream:
        for _ in range(5):
            (loss,) = trainer.update([next(stream)])[0].values()
            losses.append(float(loss.total / loss.count))
    weights = trainer.weights.state_dict()
    return losses, dict(weights) if trainer.shards is None else trainer.shards.gather(weights)


def compare_comparisons(folder: Path) -> None:
    """Called on every rank: tasks that compare the rows of a batch, together and on rank 0 also alone."""
    group = Group(torch.device("cpu"))
    for task in (name for name in TASKS if find_task(name).config.compares_rows):
        overrides = [SUBTRACTED[0], SUBTRACTED[1].replace("1.0", "0.02")]
        for group.sharded in (False, True):
            where = folder / f"{task}-{group.rank}-{group.sharded}"
            where.mkdir()
            losses, weights = five_updates(tiny_trainer(task, where, *overrides, ranks=group))
            if group.first:
                expected_losses, expected_weights = five_updates(tiny_trainer(task, where, *overrides))
                assert len(set(expected_losses)) > 3
                assert losses == pytest.approx(expected_losses, rel=1e-5)
                assert_close(weights, expected_weights, atol=1e-5, rtol=1e-5)


def test_examples_are_compared_with_those_of_all_ranks(tmp_path: Path) -> None:
    """The batches have 4, 4 and 1 rows, so that some ranks have no share of them."""
    assert exit_codes(start_ranks(RANKS, lambda: compare_comparisons(tmp_path))) == [0] * RANKS


def test_an_update_of_sharded_weights_equals_that_of_whole_ones(tmp_path: Path) -> None:
    """For every family and task; which weights are gathered together depends on how they are used."""
    assert exit_codes(start_ranks(2, lambda: compare_sharded(tmp_path))) == [0, 0]
