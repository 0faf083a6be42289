"""Taps are identities with names; hooks act in order, in the context that registered them, until their block ends."""

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
    """Adds up what passes its two taps."""

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


def test_taps_go_by_the_path_of_their_module(halves: Halves) -> None:
    assert list(hook_points(nn.Sequential(halves, halves.left, Halves()))) == ["0.left", "0.right", "2.left", "2.right"]


def test_the_last_value_that_passed_is_recorded(halves: Halves) -> None:
    with record(halves, "right") as seen:
        halves(X)
        halves(X + 1)
    assert seen.keys() == {"right"}
    assert_close(seen["right"], torch.tensor([20.0, 30.0]))


def test_what_is_recorded_hangs_on_no_graph(halves: Halves) -> None:
    with record(halves, "*") as seen:
        out = halves(X.clone().requires_grad_())
    assert out.requires_grad
    assert not any(value.requires_grad for value in seen.values())


def test_ablation_lets_zeros_pass(halves: Halves) -> None:
    with ablate(halves, "right"):
        assert_close(halves(X), X)
    assert_close(halves(X), 11 * X)


def test_a_patch_lets_the_given_value_pass_in_the_dtype_of_the_place(halves: Halves) -> None:
    with patch(halves, {"left": torch.tensor([5, 6])}):
        assert_close(halves(X), 10 * X + torch.tensor([5.0, 6.0]))


def test_listeners_are_asked_in_the_order_in_which_they_came(halves: Halves) -> None:
    with (
        hook(halves, "left", lambda name, x: x + 1),
        hook(halves, "left", lambda name, x: 3 * x),
        record(halves, "left") as seen,
    ):
        halves(X)
    assert_close(seen["left"], 3 * (X + 1))


def test_who_only_records_does_not_change(halves: Halves) -> None:
    def answers() -> tuple[bool, bool]:
        return halves.left.has_hooks, halves.left.changes

    assert answers() == (False, False)
    with record(halves, "left"):
        assert answers() == (True, False)
        with ablate(halves, "left"):
            assert answers() == (True, True)
        assert answers() == (True, False)
    assert answers() == (False, False)


def test_one_tap_that_fits_two_patterns_is_listened_to_once(halves: Halves) -> None:
    with record(halves, "left", "*"):
        assert len(halves.left.hooks) == 1


def test_an_unknown_name_is_answered_with_the_names_there_are(halves: Halves) -> None:
    with pytest.raises(ConfigError) as error, record(halves, "lefd"):
        pass
    assert str(error.value) == "no hook point matches 'lefd'; this model has: left, right\n\nhint: did you mean 'left'?"


def elsewhere(function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *given).result()


def free_of_hooks(model: nn.Module) -> bool:
    return not any_hooks() and not any(tap.hooks or tap.has_hooks or tap.changes for tap in hook_points(model).values())


@pytest.mark.parametrize(
    "change", [lambda model: ablate(model, "right"), lambda model: patch(model, {"right": X}), lambda model: record(model, "*")]
)
def test_a_hook_does_not_act_in_another_thread(halves: Halves, change: Callable[[nn.Module], Any]) -> None:
    with change(halves) as seen:
        assert_close(elsewhere(halves, X), 11 * X)
        assert not elsewhere(lambda: halves.right.has_hooks or halves.right.changes or any_hooks())
        assert halves.right.has_hooks
    assert not seen


def test_threads_that_record_and_ablate_at_once_get_what_they_get_alone(halves: Halves) -> None:
    def use(number: int) -> bool:
        x = X + number
        for _ in range(200):
            if number % 3 == 0:
                with record(halves, "*") as seen:
                    out = halves(x)
                right = torch.equal(seen["left"], x) and torch.equal(seen["right"], 10 * x) and torch.equal(out, 11 * x)
            elif number % 3 == 1:
                with ablate(halves, "left"), record(halves, "right") as seen:
                    right = torch.equal(halves(x), 10 * x) and torch.equal(seen["right"], 10 * x)
            else:
                right = torch.equal(halves(x), 11 * x)
            if not right:
                return False
        return True

    with ThreadPoolExecutor(9) as pool:
        assert all(pool.map(use, range(9)))
    assert free_of_hooks(halves)


def test_tasks_of_one_thread_have_hooks_of_their_own_and_pass_them_on(halves: Halves) -> None:
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
    assert free_of_hooks(halves)


def test_an_inherited_hook_ends_with_its_block(halves: Halves) -> None:
    with ablate(halves, "right"):
        inherited = contextvars.copy_context()
        assert_close(elsewhere(inherited.run, halves, X), X)
    assert_close(elsewhere(inherited.run, halves, X), 11 * X)


def test_nested_blocks_of_one_thread_end_one_by_one(halves: Halves) -> None:
    with record(halves, "*") as outer:
        halves(X)
        with record(halves, "right") as inner, ablate(halves, "left"):
            halves(2 * X)
        halves(3 * X)
    assert_close(inner["right"], 20 * X)
    assert_close(outer, {"left": 3 * X, "right": 30 * X})
    assert free_of_hooks(halves)


def test_a_generator_may_end_in_another_context_than_it_began_in(halves: Halves) -> None:
    def recorded() -> Iterator[dict[str, Tensor]]:
        with record(halves, "*") as seen:
            yield seen

    steps = recorded()
    contextvars.copy_context().run(next, steps)
    assert_close(elsewhere(next, steps, None), None)
    assert free_of_hooks(halves)


def test_copies_and_pickles_have_no_hooks(halves: Halves) -> None:
    with ablate(halves, "right"):
        for other in (copy.deepcopy(halves), pickle.loads(pickle.dumps(halves))):
            assert_close(other(X), 11 * X)


def test_a_compiled_model_calls_the_hooks_of_its_own_context_alone(halves: Halves) -> None:
    compiled = torch.compile(halves, backend="eager")
    assert_close(compiled(X), 11 * X)
    with ablate(halves, "right"):
        assert_close(compiled(X), X)
        assert_close(elsewhere(compiled, X), 11 * X)
    assert_close(compiled(X), 11 * X)


def test_the_documented_calls_run() -> None:
    torch.manual_seed(1)
    failed, attempted = doctest.testmod(module)
    assert attempted and not failed
