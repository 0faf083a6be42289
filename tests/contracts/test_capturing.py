"""What a GPU records as a graph may neither send numbers to the host nor fetch any from it.

On a CPU both are nothing at all, but they can be seen: a tensor made of Python's numbers is lifted, a number read from a
tensor is taken out of it, and what has as many members as a condition is met is searched for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny import END, PAD, START, Pairs, Speaker, logits_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.nn.decoder_state import States
from heedful.nn.losses import cross_entropy, symmetric_kl
from heedful.search import GraphInputs, SearchConfig, SourceBatch, Sources, step_function
from heedful.search.engine import Engine
from heedful.tasks.guided_alignment import guided_loss

FROM_THE_HOST = ("aten.lift_fresh",)
TO_THE_HOST = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.unique")


class Aboard(TorchDispatchMode):
    """Refuses what would wait for the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        picks = function is torch.ops.aten.index.Tensor and any(
            isinstance(index, Tensor) and index.dtype is torch.bool for index in args[1]
        )
        if picks or name.startswith((*FROM_THE_HOST, *TO_THE_HOST)):
            raise AssertionError(f"{name} waits for the host")
        return function(*args, **(kwargs or {}))


def test_the_watch_sees_both_directions() -> None:
    x = torch.ones(3)
    for wrong in (lambda: x[[0]], lambda: torch.tensor(1.0), lambda: float(x.sum()), lambda: x[x > 0], lambda: x.nonzero()):
        with pytest.raises(AssertionError, match="waits for the host"), Aboard():
            wrong()
    with Aboard():
        x[0] + x.new_full((), 2.0) * 3


def test_a_training_pass_can_be_captured(model: Speaker, pairs: Pairs) -> None:
    ours = copy.deepcopy(model).train()
    logits_of(ours, pairs)  # what is made once, at the first pass, is there when the second is captured
    said = torch.where(torch.arange(pairs.target.shape[1]) < 3, pairs.target, PAD).flatten()
    with Aboard():
        logits = logits_of(ours, pairs).flatten(0, 1)
        loss, _ = cross_entropy(logits, said, padding=PAD, smoothing=0.1)
        apart = symmetric_kl(logits, logits.detach() + 1e-3, said != PAD)
        (loss.total + apart.total).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters() if parameter.grad is not None)


METHODS: list[dict[str, Any]] = [{"method": "greedy"}, {"beam": 3}, {"method": "sample", "n_best": 2}]


@torch.inference_mode()
@pytest.mark.parametrize("options", METHODS, ids=str)
def test_a_step_of_a_search_can_be_captured(model: Speaker, pairs: Pairs, options: dict[str, Any]) -> None:
    def start(sources: int, slots: int) -> States:
        return model.start(pairs.source[:1].repeat(sources, 1), torch.ones_like(pairs.mask[:1]).repeat(sources, 1), room=slots)

    batch = SourceBatch(model.start(pairs.source, pairs.mask, room=0), torch.tensor([8, 6, 7]), range(3), [[]] * 3)
    batches = iter([batch])
    graph = GraphInputs(6, start, torch.device("cpu"))
    sources = Sources(lambda count, slots: next(batches, None), capacity=3, max_limit=8, graph=graph)
    predict = step_function(model)
    engine = Engine(predict, sources, SearchConfig(min_length=2, **options), start=START, end=END)
    engine.restart(predict, sources)
    for _ in range(2):  # these are taken before anything is captured
        engine.compute_step()
    before = engine.frontier.count.clone()
    with Aboard():
        engine.compute_step()
    assert (engine.frontier.count > before).any()


def test_guiding_can_be_captured() -> None:
    weights, gold = torch.rand(2, 3, 4, 5), torch.ones(2, 4, 5)
    with Aboard():
        found = guided_loss(weights, gold, (0, 2))
    assert found.total.isfinite() and found.count == 8
