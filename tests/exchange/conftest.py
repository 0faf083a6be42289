"""Shared by the tests of exports: torch's registry of ONNX functions is made once, not again for every graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from torch.onnx._internal.exporter import _registration


@pytest.fixture(scope="session", autouse=True)
def _one_registry_of_onnx_functions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        made_once = cache(_registration.ONNXRegistry.from_torchlib)
        patch.setattr(_registration.ONNXRegistry, "from_torchlib", staticmethod(made_once))
        yield
