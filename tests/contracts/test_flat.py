"""A model as two functions of plain tensors says what the model says, whoever stands in which row, for every family."""

from __future__ import annotations

import pytest
import torch
from tiny import Pairs, Speaker, logits_of
from torch.testing import assert_close

from heedful.exchange.flat import MEMORY, SIZES, Start, Step, example, find_axes, start_state


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def test_flat_steps_equal_teacher_forcing_and_rows_may_change_places(model: Speaker, pairs: Pairs) -> None:
    """After three tokens the rows are turned round, in every tensor alike."""
    step = Step(model, start_state(model, pairs.source, pairs.mask)).eval()
    known = dict(zip(step.names, Start(model)(pairs.source, pairs.mask), strict=True))
    after = [name for name in step.names if not name.startswith(MEMORY)]
    expected, order = logits_of(model, pairs), torch.arange(len(pairs.source))
    for at in range(pairs.target.shape[1]):
        if at == 3:
            order = order.flip(0)
            known = {name: tensor.flip(0) for name, tensor in known.items()}
        logits, *new = step(pairs.target[order, at], *known.values())
        assert_close(logits, expected[order, at], atol=1e-5, rtol=0)
        known |= dict(zip(after, new, strict=True))


def test_every_axis_is_told_by_what_decides_it(model: Speaker) -> None:
    """Sizes that were never looked at are foretold."""
    sizes = {"rows": 4, "source": 8, "row_state": 5}
    shapes = {name: tuple(tensor.shape) for name, tensor in example(model, **sizes).tensors.items()}
    for one in find_axes(model):
        assert one.sizes[0] == "rows", "whoever re-orders takes rows of every tensor"
        for axis, size in enumerate(one.sizes):
            assert isinstance(size, str) or shapes[one.name][axis] == size
            if size in SIZES:
                assert shapes[one.name][axis] == sizes[str(size)]
