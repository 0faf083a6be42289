"""Arrays in files: small ones are read, large ones mapped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from heedful.storage import mapping
from heedful.storage.mapping import collect, map_array


def write_numbers(path: Path, count: int) -> Path:
    np.arange(count, dtype=np.uint16).tofile(path)
    return path


def test_a_small_file_may_be_truncated_while_its_numbers_are_used(tmp_path: Path) -> None:
    """In another process: reading a truncated mapped file ends it with SIGBUS."""
    program = """
import os, sys
from pathlib import Path
from heedful.storage.mapping import map_array
array = map_array(Path(sys.argv[1]), "uint16")
os.truncate(sys.argv[1], 0)
print(array.sum())
"""
    path = write_numbers(tmp_path / "ids", 5000)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{sum(range(5000))}\n")


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_read_and_mapped_arrays_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    path = write_numbers(tmp_path / "ids", count)
    read = map_array(path, "uint16")
    monkeypatch.setattr(mapping, "IN_MEMORY", 1)
    assert np.array_equal(map_array(path, "uint16"), read)
    assert not read.flags.writeable


def test_a_temporary_array_is_the_concatenation_of_its_parts() -> None:
    parts = [np.array([1, 2], np.int32), np.zeros(0, np.int32), np.array([3], np.int32)]
    assert collect(parts, np.int32).tolist() == [1, 2, 3]
    assert collect([], np.int32).tolist() == []
