"""Steps captured in CUDA graphs must not copy values between host and device.

On a CPU such copies are free, but their operators can be detected: lifting a tensor of Python numbers, reading a number from
a tensor, and selecting by a boolean mask."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from tiny import END, PAD, START, Pairs, logits_of
from torch import Tensor

from heedful.nn.decoder_state import States
from heedful.nn.losses import cross_entropy, symmetric_kl
from heedful.nn.model import SequenceModel
from heedful.nn.torch_private import TorchDispatchMode
from heedful.search import GraphInputs, SearchConfig, SourceBatch, Sources, step_function
from heedful.search.engine import Engine
from heedful.tasks.translation.guided_alignment import guided_loss

FROM_HOST = ("aten.lift_fresh",)
TO_HOST = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.unique")


class NoHostCopies(TorchDispatchMode):
    """Raises on operators that synchronize with the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        selects = function is torch.ops.aten.index.Tensor and any(
            isinstance(index, Tensor) and index.dtype is torch.bool for index in args[1]
        )
        if selects or name.startswith((*FROM_HOST, *TO_HOST)):
            raise AssertionError(f"{name} synchronizes with the host")
        return function(*args, **(kwargs or {}))


def test_copies_in_both_directions_are_detected() -> None:
    x = torch.ones(3)
    for wrong in (lambda: x[[0]], lambda: torch.tensor(1.0), lambda: float(x.sum()), lambda: x[x > 0], lambda: x.nonzero()):
        with pytest.raises(AssertionError, match="synchronizes with the host"), NoHostCopies():
            wrong()
    with NoHostCopies():
        x[0] + x.new_full((), 2.0) * 3


@pytest.fixture(autouse=True)
def sizes_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.nn.grid.sizes_can_be_read", lambda tensor: False)


def test_a_training_pass_can_be_captured(model: SequenceModel, pairs: Pairs) -> None:
    ours = copy.deepcopy(model).train()
    logits_of(ours, pairs)  # tensors cached in the first pass exist when the second is captured
    target = torch.where(torch.arange(pairs.target.shape[1]) < 3, pairs.target, PAD).flatten()
    with NoHostCopies():
        logits = logits_of(ours, pairs).flatten(0, 1)
        loss, _ = cross_entropy(logits, target, padding=PAD, smoothing=0.1)
        divergence = symmetric_kl(logits, logits.detach() + 1e-3, target != PAD)
        (loss.total + divergence.total).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters() if parameter.grad is not None)


METHODS: list[dict[str, Any]] = [{"method": "greedy"}, {"beam": 3}, {"method": "sample", "n_best": 2}]


@torch.inference_mode()
def test_a_step_of_a_search_can_be_captured(model: SequenceModel, pairs: Pairs) -> None:
    def start(sources: int, slots: int) -> States:
        return model.start(pairs.source[:1].repeat(sources, 1), torch.ones_like(pairs.mask[:1]).repeat(sources, 1), room=slots)

    for options in METHODS:
        batch = SourceBatch(model.start(pairs.source, pairs.mask, room=0), torch.tensor([8, 6, 7]), range(3), [[]] * 3)
        sources = Sources(
            partial(next_batch, iter([batch])), capacity=3, max_limit=8, graph=GraphInputs(6, start, torch.device("cpu"))
        )
        predict = step_function(model)
        engine = Engine(predict, sources, SearchConfig(min_length=4, **options), start=START, end=END)
        engine.restart(predict, sources)
        for _ in range(2):  # before the capture
            engine.compute_step()
        before = engine.frontier.count.clone()
        with NoHostCopies():
            engine.compute_step()
        assert (engine.frontier.count > before).any()


def next_batch(batches: Iterator[SourceBatch], count: int, slots: int) -> SourceBatch | None:
    return next(batches, None)


def test_guided_alignment_can_be_captured() -> None:
    weights, gold = torch.rand(2, 3, 4, 5), torch.ones(2, 4, 5)
    with NoHostCopies():
        loss = guided_loss(weights, gold, (0, 2))
    assert loss.total.isfinite() and loss.count == 8
