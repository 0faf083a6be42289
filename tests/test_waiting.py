"""Threads spin only briefly while they wait, unless the user chose how they wait or torch is loaded already."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import heedful


@pytest.mark.parametrize(
    ("given", "first", "spin_count"),
    [
        ({}, "", "1000"),
        ({"OMP_WAIT_POLICY": "active"}, "", None),
        ({"GOMP_SPINCOUNT": "70"}, "", "70"),
        ({"KMP_BLOCKTIME": "10"}, "", None),
        ({}, "sys.modules['torch'] = None; ", None),
    ],
)
def test_the_setting_is_made_before_torch_is_loaded_and_never_overrides(
    given: dict[str, str], first: str, spin_count: str | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in heedful.WAITING} | given
    code = f"import os, sys; {first}import heedful; assert {first!r} or 'torch' not in sys.modules; "
    code += "print(os.environ.get('GOMP_SPINCOUNT'))"
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == str(spin_count)
