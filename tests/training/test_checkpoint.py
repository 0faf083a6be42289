"""A checkpoint is restored bit for bit, or the error names the damaged file; every damage is detected."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from workshop import start

from heedful.errors import CheckpointError
from heedful.storage import reading
from heedful.storage.manifest import NAME
from heedful.training.checkpoint import load, load_state, load_tensors, save, save_named, stems, verify, verify_usable
from heedful.training.manifest import SHARDED, Manifest, read_manifest, record

STATE = {"step": 7, "rate": 0.1 + 0.2, "best": [3, 36.9], "note": "Grüße", "nothing": None}
KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)


def tensors() -> dict[str, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return {
        "model": {"weight": torch.randn(3, 4, generator=generator), "count": torch.tensor(5)},
        "optimizer": {"weight.moment": torch.randn(3, 4, generator=generator)},
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "checkpoints", 7, tensors(), STATE)


def test_a_checkpoint_is_loaded_bit_for_bit(folder: Path) -> None:
    loaded, state = load(folder)
    assert folder.name == "step-7"
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        NAME,
    }
    assert loaded.keys() == tensors().keys()
    assert all(same(loaded[stem], tensors()[stem]) for stem in loaded)
    assert state == STATE
    assert stems(folder) == ["model", "optimizer"]
    assert load_state(folder) == STATE
    assert same(load_tensors(folder, "model"), tensors()["model"])


@settings(deadline=None, max_examples=40)
@given(kind=st.sampled_from(KINDS), shape=st.lists(st.integers(0, 4), max_size=3), turned=st.booleans(), part=st.booleans())
def test_tensors_of_any_type_and_shape_are_restored(
    tmp_path_factory: pytest.TempPathFactory, kind: torch.dtype, shape: list[int], turned: bool, part: bool
) -> None:
    tensor = (torch.randn([2, *shape]) * 9).to(kind)
    tensor = tensor[1] if part else tensor
    tensor = tensor.transpose(0, -1) if turned and tensor.ndim else tensor
    given_tensors = {"one": tensor, "other": torch.zeros(0, 3)}
    folder = save(tmp_path_factory.mktemp("any"), 1, {"model": given_tensors}, {})
    assert same(load_tensors(folder, "model"), given_tensors)


def test_tensors_may_be_larger_than_the_largest_file_that_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_FILE", 5_000)  # the optimizer of a base model has 500 MB, the limit is 256
    named = {"model": {"weight": torch.randn(2000)}, "optimizer": {"moment": torch.randn(4000)}}
    folder = save(tmp_path / "checkpoints", 7, named, {"step": 7})
    verify_usable(folder)
    for stem, loaded in load(folder)[0].items():
        assert all(torch.equal(loaded[name], tensor) for name, tensor in named[stem].items())


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    weight = torch.randn(100, 10)
    folder = save(tmp_path, 1, {"model": {"source": weight, "target": weight, "output": weight.detach()}}, {})
    loaded = load_tensors(folder, "model")
    assert (folder / "model.safetensors").stat().st_size < 1.1 * weight.nbytes
    assert loaded["source"].data_ptr() == loaded["target"].data_ptr() == loaded["output"].data_ptr()
    assert torch.equal(loaded["output"], weight)


def test_views_of_one_storage_are_restored_with_their_own_values(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    views = {"base": base, "flat": base.view(-1), "row": base[1], "turned": base.T, "again": base[1:]}
    folder = save(tmp_path, 1, {"model": views}, {})
    assert same(load_tensors(folder, "model"), views)
    assert (folder / "model.safetensors").stat().st_size < 1000  # a row is stored without the rest of its storage


def test_all_files_have_the_same_permissions(folder: Path) -> None:
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_saving_twice_writes_identical_files(tmp_path: Path) -> None:
    one, other = (save(tmp_path / name, 7, tensors(), STATE) for name in ("one", "other"))
    assert all((one / path.name).read_bytes() == path.read_bytes() for path in other.iterdir())


def test_every_changed_byte_is_detected(folder: Path) -> None:
    checked = 0
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for position in range(len(content)):
            for bit in {position % 8, 5}:  # bit 5 changes the case of letters
                path.write_bytes(content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :])
                with pytest.raises(CheckpointError):
                    verify(folder)
                checked += 1
        path.write_bytes(content)
    verify(folder)
    assert checked >= sum(path.stat().st_size for path in folder.iterdir()) > 1000


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_damaged_checkpoint_is_never_loaded(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = save(tmp_path_factory.mktemp("damage"), 7, tensors(), STATE)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start, len(content)))
    altered = content[:start] + data.draw(st.binary(max_size=9)) + content[stop:]
    path.write_bytes(altered)
    if altered != content:
        with pytest.raises(CheckpointError, match=path.name):
            load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", NAME])
def test_the_error_names_a_missing_truncated_or_empty_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for shorter in (content[:-1], b""):
        (folder / name).write_bytes(shorter)
        with pytest.raises(CheckpointError, match=f"step-7: {name}"):
            verify(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"step-7: {name} is missing"):
        load(folder)


def test_only_the_requested_file_is_read(folder: Path) -> None:
    (folder / "optimizer.safetensors").unlink()
    assert same(load_tensors(folder, "model"), tensors()["model"])
    with pytest.raises(CheckpointError, match=r"has no tensors of 'average'; available: model, optimizer"):
        load_tensors(folder, "average")


def test_a_renamed_or_newer_checkpoint_is_refused(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("step-9"))
    with pytest.raises(CheckpointError, match="belongs to step-7; the folder was renamed"):
        verify(renamed)
    (renamed / NAME).write_text(json.dumps({"format": SHARDED + 1, "shards": []}))
    with pytest.raises(CheckpointError, match=f"has format {SHARDED + 1}, but this version of heedful reads formats up to"):
        load(renamed)


def forge(folder: Path, name: str, content: bytes | None = None) -> None:
    """Write `content` to `name`, and a manifest that matches it."""
    if content is not None:
        (folder / name).write_bytes(content)
    measured = record(folder / name) if content is not None else record(folder / "state.json")
    files = read_manifest(folder).files | {name: measured}
    (folder / NAME).write_text(Manifest(name=folder.name, files=files).render())


@pytest.mark.parametrize("name", ["../state.json", "/etc/passwd", "a/b/c", "..", ".hidden", "a\\b", ""])
def test_paths_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    forge(folder, name)
    with pytest.raises(CheckpointError, match="expected names of files in the folder"):
        verify(folder)


def header(text: str, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text.encode() + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04pickle",
        header("{}", length=2**62),
        header('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', b"1234"),
        header('{"w":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,4]}}', b"1234"),
        header('{"w":{"dtype":"NAN","shape":[1],"data_offsets":[0,4]}}', b"1234"),
        header(
            '{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            b"1234",
        ),
        header("[" * 3000),
    ],
)
def test_an_invalid_header_is_refused_even_with_a_matching_manifest(folder: Path, content: bytes) -> None:
    forge(folder, "model.safetensors", content)
    verify(folder)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a safetensors file"):
        load(folder)


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_state_that_is_not_an_object_is_refused(folder: Path, content: bytes) -> None:
    forge(folder, "state.json", content)
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load(folder)


def test_saving_a_step_again_replaces_it(folder: Path) -> None:
    save(folder.parent, 7, tensors(), {"second": True})
    assert load(folder)[1] == {"second": True}
    assert [path.name for path in folder.parent.iterdir()] == ["step-7"]


def test_a_damaged_checkpoint_of_the_same_step_is_set_aside_and_kept(folder: Path) -> None:
    for _ in range(2):
        (folder / "state.json").write_text("{}")
        save(folder.parent, 7, tensors(), STATE)
    assert load(folder)[1] == STATE
    assert sorted(path.name for path in folder.parent.iterdir()) == ["step-7", "step-7.damaged", "step-7.damaged-2"]
    assert (folder.parent / "step-7.damaged" / "state.json").read_text() == "{}"


def test_a_checkpoint_may_have_another_name(tmp_path: Path) -> None:
    folder = save_named(tmp_path, "average", {"model": tensors()["model"]}, {"of": ["step-1", "step-2"]})
    assert folder == tmp_path / "average"
    assert same(load(folder)[0]["model"], tensors()["model"])


def test_everything_is_flushed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a power cut: all files and their folder, then the rename, then the parent."""
    calls: list[str] = []
    rename = os.rename

    def renaming(old: Path, new: Path) -> None:
        calls.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    monkeypatch.setattr(os, "rename", renaming)
    save(tmp_path / "checkpoints", 7, tensors(), STATE)
    calls = ["folder" if name.startswith(".tmp-step-7-") else name for name in calls]
    before, after = calls[: calls.index("rename")], calls[calls.index("rename") + 1 :]
    assert set(before) == {"state.json", "model.safetensors", "optimizer.safetensors", NAME, "folder"}
    assert before[-1] == "folder" and after == ["checkpoints"]


def test_a_full_disk_is_detected_before_anything_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
    big = {"model": {"weight": torch.zeros(1000)}}
    with pytest.raises(CheckpointError, match=r"needs 4,8\d\d bytes .* but 1,000 are free; ") as e:
        save(folder.parent, 8, big, {})
    assert "the last checkpoint, step-7, is unchanged" in str(e.value)
    assert [path.name for path in folder.parent.iterdir()] == ["step-7"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_a_failing_disk_leaves_the_old_checkpoint_and_no_temporary_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The n-th flush fails, for every n until all succeed."""
    flush: Callable[[int], None] = os.fsync
    failures = 0
    for n in range(1, 100):
        left = n

        def failing(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(code, os.strerror(code))
            flush(descriptor)

        monkeypatch.setattr(os, "fsync", failing)
        try:
            save(folder.parent, 8, tensors(), STATE)
        except CheckpointError as error:
            failures += 1
            assert os.strerror(code) in str(error) and "the last checkpoint, step-" in str(error)
            verify(folder)
            assert not list(folder.parent.glob(".tmp-*"))
            shutil.rmtree(folder.parent / "step-8", ignore_errors=True)  # the flush of the parent failed
        else:
            break
    assert failures >= 6
    verify(folder.parent / "step-8")


def test_an_incomplete_write_leaves_the_old_checkpoint_and_no_temporary_files(folder: Path) -> None:
    """The limit on the size of files makes the library's own write fail, as a full disk does."""

    def save_another() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            save(folder.parent, 8, {"model": {"weight": torch.zeros(2000)}}, {})
        except CheckpointError as error:
            print(error)

    with start(save_another, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "File too large" in output
    assert "the last checkpoint, step-7, is unchanged" in output
    verify(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["step-7"]


def test_an_interrupt_while_saving_leaves_no_temporary_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(folder.parent, 8, tensors(), STATE)
    assert [path.name for path in folder.parent.iterdir()] == ["step-7"]
