"""The default device."""

from __future__ import annotations

import pytest
import torch

from heedful.runs.build import choose_device


@pytest.mark.parametrize(("cuda", "mps", "chosen"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_the_fastest_available_device_is_the_default(
    cuda: bool, mps: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device().type == chosen
    assert choose_device("cpu").type == "cpu"
