"""Taps are identities with names; who listens is heard, in order, and gone afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.nn.taps import Tap, ablate, listen, patch, record, taps


class Halves(nn.Module):
    """Adds up what passes its two taps."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Tap(), Tap()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.left(x) + self.right(10 * x)
        return total


@pytest.fixture
def halves() -> Halves:
    return Halves()


X = torch.tensor([1.0, 2.0])


def test_taps_go_by_the_path_of_their_module(halves: Halves) -> None:
    assert list(taps(nn.Sequential(halves, halves.left, Halves()))) == ["0.left", "0.right", "2.left", "2.right"]


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
        listen(halves, "left", lambda name, x: x + 1),
        listen(halves, "left", lambda name, x: 3 * x),
        record(halves, "left") as seen,
    ):
        halves(X)
    assert_close(seen["left"], 3 * (X + 1))


def test_who_only_records_does_not_change(halves: Halves) -> None:
    def answers() -> tuple[bool, bool]:
        return halves.left.wanted, halves.left.changes

    assert answers() == (False, False)
    with record(halves, "left"):
        assert answers() == (True, False)
        with ablate(halves, "left"):
            assert answers() == (True, True)
        assert answers() == (True, False)
    assert answers() == (False, False)


def test_one_tap_that_fits_two_patterns_is_listened_to_once(halves: Halves) -> None:
    with record(halves, "left", "*"):
        assert len(halves.left.listeners) == 1


def test_an_unknown_name_is_answered_with_the_names_there_are(halves: Halves) -> None:
    with pytest.raises(ConfigError) as error, record(halves, "lefd"):
        pass
    assert str(error.value) == "no tap fits 'lefd'; this model has: left, right\n\nhint: did you mean 'left'?"
