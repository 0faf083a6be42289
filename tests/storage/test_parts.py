from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.storage.parts import JOB, Parts, Shard, join_parts, load_parts, open_parts


@given(st.integers(0, 300), st.integers(1, 40))
def test_every_part_is_in_one_shard_and_shards_differ_by_at_most_one_part(total: int, count: int) -> None:
    shares = [Shard(number, count).share(total) for number in range(1, count + 1)]
    assert [part for share in shares for part in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return open_parts(tmp_path / "out", {"model": "m"}, 10, 4)


def fill(parts: Parts, *numbers: int) -> None:
    for number in numbers:
        parts.commit(number, f"{number}\n".encode() * parts.size(number))


def test_parts_are_joined_in_order_whatever_order_they_were_written_in(parts: Parts, tmp_path: Path) -> None:
    fill(parts, 2, 0, 1, 0)
    assert join_parts(load_parts(tmp_path / "out"), tmp_path / "out") == (20, 10)
    assert (tmp_path / "out").read_text() == "0\n" * 4 + "1\n" * 4 + "2\n" * 2


def test_no_input_is_no_part_and_an_empty_file(tmp_path: Path) -> None:
    parts = open_parts(tmp_path / "out", {}, 0, 4)
    assert (parts.total, join_parts(parts, tmp_path / "out")) == (0, (0, 0))
    assert (tmp_path / "out").read_bytes() == b""


def test_any_changed_byte_of_a_part_is_detected_and_the_part_is_done_again(parts: Parts, tmp_path: Path) -> None:
    fill(parts, 0, 1, 2)
    path = parts.folder / "part-00000001"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert list(parts.todo(range(3))) == [range(1, 2)]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert list(parts.todo(range(3))) == [range(1, 2)]
    with pytest.raises(DataError, match=r"cannot be joined: the inputs 5 to 8 are missing"):
        join_parts(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_shard_is_named(parts: Parts, tmp_path: Path) -> None:
    for number in (1, 3):
        with parts.hold(Shard(number, 3)):
            fill(parts, *Shard(number, 3).share(parts.total))
    with pytest.raises(DataError, match=r"out cannot be joined: shard 2/3 is missing or incomplete"):
        join_parts(parts, tmp_path / "out")
    fill(parts, 1)
    join_parts(parts, tmp_path / "out")


def test_another_job_in_the_same_folder_is_refused(parts: Parts, tmp_path: Path) -> None:
    assert open_parts(tmp_path / "out", {"model": "m"}, 10, 4) == parts
    for job, inputs, every, change in (
        ({"model": "n"}, 10, 4, r"MODEL \(was 'm', given 'n'\) has"),
        ({"model": "m"}, 11, 4, r"inputs \(was 10, given 11\) has"),
        ({"model": ["n"]}, 10, 5, r"MODEL \(was 'm', given \['n'\]\), every \(was 4, given 5\) have"),
    ):
        with pytest.raises(ConfigError, match=rf"^{change} changed since .*out\.parts was begun; expected the same"):
            open_parts(tmp_path / "out", job, inputs, every, {"model": "MODEL"})


def test_a_damaged_or_missing_job_is_an_error(parts: Parts, tmp_path: Path) -> None:
    (parts.folder / JOB).write_text((parts.folder / JOB).read_text().replace("10", "11"))
    with pytest.raises(CheckpointError, match=r"JOB\.json is damaged"):
        load_parts(tmp_path / "out")
    with pytest.raises(DataError, match="there is no folder"):
        load_parts(tmp_path / "other")


def test_a_shard_is_written_by_one_process_at_a_time(parts: Parts) -> None:
    with (
        parts.hold(Shard(1, 2)),
        parts.hold(Shard(2, 2)),
        pytest.raises(ConfigError, match=r"shard 1/2 of .* is being written by process \d+"),
        parts.hold(Shard(1, 2)),
    ):
        pass
