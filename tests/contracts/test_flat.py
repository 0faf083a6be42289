"""Models as two functions of plain tensors give the model's logits, in any order of rows, for every family."""

from __future__ import annotations

import pytest
import torch
from tiny import Pairs, logits_of
from torch.testing import assert_close

from heedful.exchange.flat import MEMORY, SIZES, Start, Step, example, find_axes, start_state
from heedful.nn.model import SequenceModel


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def test_flat_steps_equal_teacher_forcing_and_rows_may_be_reordered(model: SequenceModel, pairs: Pairs) -> None:
    """After three tokens the rows of every tensor are reversed."""
    step = Step(model, start_state(model, pairs.source, pairs.mask)).eval()
    tensors = dict(zip(step.names, Start(model)(pairs.source, pairs.mask), strict=True))
    after = [name for name in step.names if not name.startswith(MEMORY)]
    expected, order = logits_of(model, pairs), torch.arange(len(pairs.source))
    for at in range(pairs.target.shape[1]):
        if at == 3:
            order = order.flip(0)
            tensors = {name: tensor.flip(0) for name, tensor in tensors.items()}
        logits, *new = step(pairs.target[order, at], *tensors.values())
        assert_close(logits, expected[order, at], atol=1e-5, rtol=0)
        tensors |= dict(zip(after, new, strict=True))


def test_every_axis_is_named_by_the_size_that_determines_it(model: SequenceModel) -> None:
    """The names predict the shapes for other sizes."""
    sizes = {"rows": 4, "source": 8, "row_state": 5}
    shapes = {name: tuple(tensor.shape) for name, tensor in example(model, **sizes).tensors.items()}
    for axes in find_axes(model):
        assert axes.sizes[0] == "rows", "reordering selects rows of every tensor"
        for axis, size in enumerate(axes.sizes):
            assert isinstance(size, str) or shapes[axes.name][axis] == size
            if size in SIZES:
                assert shapes[axes.name][axis] == sizes[str(size)]
