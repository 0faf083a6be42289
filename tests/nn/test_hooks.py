"""Hook points are identities with names; hooks act in order, in the context that registered them, until their block ends."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import doctest
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn import hooks as module
from heedful.nn.hooks import HookPoint, ablate, any_hooks, hook, hook_points, patch, record


class Halves(nn.Module):
    """Adds the outputs of its two hook points."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.left(x) + self.right(10 * x)
        return total


@pytest.fixture
def halves() -> Halves:
    return Halves()


X = torch.tensor([1.0, 2.0])


def test_hook_points_are_named_by_the_path_of_their_module(halves: Halves) -> None:
    assert list(hook_points(nn.Sequential(halves, halves.left, Halves()))) == ["0.left", "0.right", "2.left", "2.right"]


def test_the_last_value_is_recorded(halves: Halves) -> None:
    with record(halves, "right") as recorded:
        halves(X)
        halves(X + 1)
    assert recorded.keys() == {"right"}
    assert_close(recorded["right"], torch.tensor([20.0, 30.0]))


def test_recorded_values_are_detached(halves: Halves) -> None:
    with record(halves, "*") as recorded:
        out = halves(X.clone().requires_grad_())
    assert out.requires_grad
    assert not any(value.requires_grad for value in recorded.values())


def test_ablation_replaces_values_by_zeros(halves: Halves) -> None:
    with ablate(halves, "right"):
        assert_close(halves(X), X)
    assert_close(halves(X), 11 * X)


def test_a_patched_value_is_cast_to_the_dtype_of_the_activation(halves: Halves) -> None:
    with patch(halves, {"left": torch.tensor([5, 6])}):
        assert_close(halves(X), 10 * X + torch.tensor([5.0, 6.0]))


def test_hooks_are_called_in_order_of_registration(halves: Halves) -> None:
    with (
        hook(halves, "left", lambda name, x: x + 1),
        hook(halves, "left", lambda name, x: 3 * x),
        record(halves, "left") as recorded,
    ):
        halves(X)
    assert_close(recorded["left"], 3 * (X + 1))


def test_recording_does_not_count_as_changing(halves: Halves) -> None:
    def flags() -> tuple[bool, bool]:
        return halves.left.has_hooks, halves.left.changes

    assert flags() == (False, False)
    with record(halves, "left"):
        assert flags() == (True, False)
        with ablate(halves, "left"):
            assert flags() == (True, True)
        assert flags() == (True, False)
    assert flags() == (False, False)


def test_a_hook_point_that_matches_two_patterns_is_recorded_once(halves: Halves) -> None:
    with record(halves, "left", "*"):
        assert len(halves.left.hooks) == 1


def test_an_unknown_name_lists_the_known_names(halves: Halves) -> None:
    with pytest.raises(ConfigError) as error, record(halves, "lefd"):
        pass
    assert str(error.value) == "no hook point matches 'lefd'; this model has: left, right\n\nhint: did you mean 'left'?"


def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def has_no_hooks(model: nn.Module) -> bool:
    return not any_hooks() and not any(point.hooks or point.has_hooks or point.changes for point in hook_points(model).values())


@pytest.mark.parametrize(
    "change", [lambda model: ablate(model, "right"), lambda model: patch(model, {"right": X}), lambda model: record(model, "*")]
)
def test_a_hook_does_not_act_in_another_thread(halves: Halves, change: Callable[[nn.Module], Any]) -> None:
    with change(halves) as recorded:
        assert_close(run_in_thread(halves, X), 11 * X)
        assert not run_in_thread(lambda: halves.right.has_hooks or halves.right.changes or any_hooks())
        assert halves.right.has_hooks
    assert not recorded


def test_concurrent_threads_do_not_affect_each_other(halves: Halves) -> None:
    def use(number: int) -> bool:
        x = X + number
        for _ in range(200):
            if number % 3 == 0:
                with record(halves, "*") as recorded:
                    out = halves(x)
                correct = (
                    torch.equal(recorded["left"], x) and torch.equal(recorded["right"], 10 * x) and torch.equal(out, 11 * x)
                )
            elif number % 3 == 1:
                with ablate(halves, "left"), record(halves, "right") as recorded:
                    correct = torch.equal(halves(x), 10 * x) and torch.equal(recorded["right"], 10 * x)
            else:
                correct = torch.equal(halves(x), 11 * x)
            if not correct:
                return False
        return True

    with ThreadPoolExecutor(9) as pool:
        assert all(pool.map(use, range(9)))
    assert has_no_hooks(halves)


def test_asyncio_tasks_have_their_own_hooks_and_pass_them_to_threads(halves: Halves) -> None:
    async def ablated() -> list[Tensor]:
        with ablate(halves, "right"):
            await asyncio.sleep(0)
            return [halves(X), await asyncio.to_thread(halves, X)]

    async def plain() -> list[Tensor]:
        first = halves(X)
        await asyncio.sleep(0)
        return [first, halves(X)]

    async def both() -> tuple[list[Tensor], list[Tensor]]:
        return await asyncio.gather(ablated(), plain())

    changed, unchanged = asyncio.run(both())
    assert_close(changed, [X, X])
    assert_close(unchanged, [11 * X, 11 * X])
    assert has_no_hooks(halves)


def test_an_inherited_hook_ends_with_its_block(halves: Halves) -> None:
    with ablate(halves, "right"):
        inherited = contextvars.copy_context()
        assert_close(run_in_thread(inherited.run, halves, X), X)
    assert_close(run_in_thread(inherited.run, halves, X), 11 * X)


def test_nested_blocks_of_one_thread_end_one_by_one(halves: Halves) -> None:
    with record(halves, "*") as outer:
        halves(X)
        with record(halves, "right") as inner, ablate(halves, "left"):
            halves(2 * X)
        halves(3 * X)
    assert_close(inner["right"], 20 * X)
    assert_close(outer, {"left": 3 * X, "right": 30 * X})
    assert has_no_hooks(halves)


def test_a_generator_may_end_in_another_context(halves: Halves) -> None:
    def recordings() -> Iterator[dict[str, Tensor]]:
        with record(halves, "*") as recorded:
            yield recorded

    steps = recordings()
    contextvars.copy_context().run(next, steps)
    assert_close(run_in_thread(next, steps, None), None)
    assert has_no_hooks(halves)


def test_copies_and_pickles_have_no_hooks(halves: Halves) -> None:
    with ablate(halves, "right"):
        for other in (copy.deepcopy(halves), pickle.loads(pickle.dumps(halves))):
            assert_close(other(X), 11 * X)


def test_a_compiled_model_calls_only_the_hooks_of_its_context(halves: Halves) -> None:
    compiled = torch.compile(halves, backend="eager")
    assert_close(compiled(X), 11 * X)
    with ablate(halves, "right"):
        assert_close(compiled(X), X)
        assert_close(run_in_thread(compiled, X), 11 * X)
    assert_close(compiled(X), 11 * X)


def test_the_documented_calls_run() -> None:
    torch.manual_seed(1)
    test = doctest.DocTestParser().get_doctest(module.__doc__ or "", dict(vars(module)), module.__name__, None, None)
    assert test.examples and not doctest.DocTestRunner().run(test).failed
