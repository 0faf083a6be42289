from __future__ import annotations

import gc
import gzip
import os
import subprocess
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.storage import reading
from heedful.storage.reading import convert_command, is_rereadable, read_bytes, read_lines, sha256_of, unreadable

PIECES = st.lists(st.sampled_from([b"a", b"\xc3\xa9", b"\n", b"\r", b"\x85", b"\xe2\x80\xa8", b"\x0c", b"\0\0", b"\xff"]))


@given(content=PIECES.map(b"".join), packed=st.booleans())
def test_lines_end_at_newlines_only(tmp_path_factory: pytest.TempPathFactory, content: bytes, packed: bool) -> None:
    path = tmp_path_factory.mktemp("lines") / ("text.gz" if packed else "text")
    path.write_bytes(gzip.compress(content) if packed else content)
    assume(b"\n\0" not in content and b"\0\n" not in content)  # that may be UTF-16
    assume(content.endswith(b"\n") or content.split(b"\n")[0].rstrip(b"\r").count(b"\r") < 2)  # that is refused
    if not content:
        with pytest.raises(DataError, match="is empty"):
            list(read_lines(path))
        return
    expected = content.removesuffix(b"\n").split(b"\n")
    assert list(read_lines(path)) == [line[:-1] if line.endswith(b"\r") else line for line in expected]


def test_a_byte_order_mark_is_removed_at_the_start_only(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\n\ufefftwo".encode())
    assert list(read_lines(path)) == [b"one", "\ufefftwo".encode()]


def test_the_file_is_read_as_a_stream(tmp_path: Path) -> None:
    """The first lines are read before the damage at the end."""
    path = tmp_path / "text.gz"
    whole = gzip.compress("".join(f"line {i}\n" for i in range(200_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    lines = read_lines(path)
    assert next(lines) == b"line 0"
    with pytest.raises(DataError, match="ends after line"):
        list(lines)


def broken(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that cannot be read, with their messages."""
    packed = gzip.compress(b"one\ntwo\nthree\n")
    contents = {
        "empty.txt": b"",
        "empty.gz": gzip.compress(b""),
        "plain.gz": b"not gzip\n",
        "cut.gz": packed[:-8],
        "flipped.gz": packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:],
        "train.en.gz": packed,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    there = ", ".join([*sorted(contents)[:5], "…"])
    again = "\n\nhint: copy or download it again"
    crc = "CRC check failed"
    return {
        "missing": (
            folder / "other",
            f"{folder}/other does not exist\n\nhint: check the name; {folder.resolve()} contains: {there}",
        ),
        "near": (
            folder / "trian.en.gz",
            f"{folder}/trian.en.gz does not exist\n\nhint: did you mean '{folder}/train.en.gz'?",
        ),
        "packed name": (
            folder / "train.en",
            f"{folder}/train.en does not exist\n\nhint: did you mean '{folder}/train.en.gz'?",
        ),
        "no folder": (
            folder / "a" / "b",
            f"{folder}/a/b does not exist, nor does the folder {folder}/a\n\nhint: check the name, relative to {Path.cwd()}",
        ),
        "a folder": (folder, f"{folder} is a folder; expected a text file"),
        "empty": (folder / "empty.txt", f"{folder}/empty.txt is empty; expected at least one line"),
        "empty gzip": (folder / "empty.gz", f"{folder}/empty.gz is empty; expected at least one line"),
        "not gzip": (
            folder / "plain.gz",
            f"{folder}/plain.gz is not gzip, despite its suffix\n\nhint: remove the suffix .gz if it is text",
        ),
        "cut": (folder / "cut.gz", f"{folder}/cut.gz is truncated: its gzip stream ends after line 3{again}"),
        "flipped": (
            folder / "flipped.gz",
            f"{folder}/flipped.gz is damaged: its gzip stream cannot be read ({crc}",
        ),
    }


CASES = [
    *("missing", "near", "packed name", "no folder", "a folder", "empty", "empty gzip"),
    *("not gzip", "cut", "flipped"),
]


@pytest.mark.parametrize(
    ("missing", "suggested"),
    [("nope.png", None), ("circl.png", "circle.png"), ("circle.jpg", "circle.png"), ("one.png", "one.png.gz")],
)
def test_a_suffix_in_common_is_no_close_name(missing: str, suggested: str | None, tmp_path: Path) -> None:
    for name in ("circle.png", "new.png", "one.png.gz", "new.jpg"):
        (tmp_path / name).touch()
    hint = unreadable(tmp_path / missing, FileNotFoundError()).hint
    assert hint is not None and (
        hint == f"did you mean {str(tmp_path / suggested)!r}?" if suggested else "check the name" in hint
    )


def test_hidden_files_are_not_suggested(tmp_path: Path) -> None:
    for name in (".git", ".train.en.swp", "train.de"):
        (tmp_path / name).touch()
    for missing, hint in (("other", "contains: train.de"), ("train.d", "train.de'?")):
        with pytest.raises(DataError) as caught:
            list(read_lines(tmp_path / missing))
        assert str(caught.value).endswith(hint)


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_cannot_be_read_gives_one_clear_message(tmp_path: Path, case: str) -> None:
    path, message = broken(tmp_path)[case]
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(message) if case == "flipped" else str(caught.value) == message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_from_its_first_byte(packed: bool) -> None:
    """A pipe opened twice loses what was read first; one byte at a time is the hardest case."""
    content = "".join(f"line {i}\n" for i in range(2000)).encode()
    read_end, write_end = os.pipe()
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(trickle, write_end, gzip.compress(content) if packed else content)
        lines = list(read_lines(Path(f"/dev/fd/{read_end}")))
        sent.result()
    os.close(read_end)
    assert lines == content.splitlines()


def trickle(descriptor: int, content: bytes) -> None:
    for at in range(8):
        os.write(descriptor, content[at : at + 1])
        time.sleep(0.001)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content[8:])


def test_gzip_is_recognized_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(gzip.compress(b"\xef\xbb\xbfone\ntwo\n"))
    assert list(read_lines(tmp_path / "text")) == [b"one", b"two"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_the_error_names_another_unicode_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "text"
    path.write_bytes("Zwei junge Männer\nsind im Freien\n".encode(encoding))
    with pytest.raises(
        DataError, match=rf"is {encoding.upper().replace('16-', '16')}; expected UTF-8\n\nhint: convert it: iconv -f"
    ):
        list(read_lines(path))


SCRIPTS = {
    "Greek": "Δύο νεαροί άνδρες\nείναι έξω\n",
    "Russian": "Двое молодых людей\nна улице\n",
    "Hebrew": "שני גברים צעירים\nנמצאים בחוץ\n",
    "Arabic": "رجلان شابان\nفي الخارج\n",
    "Hindi": "दो युवक बाहर हैं\nवे पेड़ के पास हैं\n",
    "Thai": "ชายหนุ่มสองคน\nอยู่ข้างนอก\n",
    "Chinese": "两个年轻人在户外\n他们站在树丛旁边，一个人在山上\n",
    "Japanese": "二人の若い男性が外にいます\n木の　そばに立っています\n",
    "Korean": "젊은 남자 두 명이\n밖에 있다\n",
}


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_utf16_without_a_byte_order_mark_is_recognized_in_every_script(tmp_path: Path, script: str, order: str) -> None:
    path, encoding = tmp_path / "text", f"UTF-16{order.upper()}"
    path.write_bytes(SCRIPTS[script].encode(f"utf-16-{order}"))
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    command = f"iconv -f {encoding} -t UTF-8 {path} > {path}.utf8"
    assert str(caught.value) == f"{path} is {encoding}; expected UTF-8\n\nhint: convert it: {command}"
    assert subprocess.run(command, shell=True).returncode == 0
    assert list(read_lines(Path(f"{path}.utf8"))) == SCRIPTS[script].encode().splitlines()


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "koi8-r", "gb18030", "utf-8"])
@pytest.mark.parametrize("nul", ["", "\0"])
def test_other_text_is_not_taken_for_utf16_even_with_nul_bytes(tmp_path: Path, encoding: str, nul: str) -> None:
    written = {"ascii": ["a b c"], "iso-8859-1": ["Déjà vu à Noël"], "koi8-r": [SCRIPTS["Russian"]]}
    for text in written.get(encoding, [SCRIPTS["Chinese"]] if encoding == "gb18030" else SCRIPTS.values()):
        for start in ("", "x"):
            content = "\n".join(f"{start}{text} {nul} {nul}{text}{nul}." for _ in range(5)).encode(encoding)
            (tmp_path / "text").write_bytes(content)
            assert list(read_lines(tmp_path / "text")) == content.split(b"\n")


def test_a_line_without_end_is_refused_before_memory_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 1 << 20)
    (tmp_path / "zeros").write_bytes(bytes(3 << 20))
    with pytest.raises(DataError, match="line 1 has more than 1 MiB"):
        list(read_lines(tmp_path / "zeros"))


def test_only_a_regular_file_is_rereadable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    assert is_rereadable(tmp_path / "file")
    assert not is_rereadable(tmp_path / "fifo")
    assert not is_rereadable(Path("-"))


def test_gzip_of_gzip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(gzip.compress(b"one\n")))
    with pytest.raises(DataError, match="compressed twice"):
        list(read_lines(tmp_path / "text.gz"))


def test_a_file_with_carriage_returns_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\rtwo\rthree\r")
    with pytest.raises(DataError, match="ends its lines with carriage returns"):
        list(read_lines(tmp_path / "text"))
    (tmp_path / "text").write_bytes(b"one\rtwo\rthree\n")  # inside a line they are text
    assert list(read_lines(tmp_path / "text")) == [b"one\rtwo\rthree"]


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("a.txt", "iconv -f UTF-16 -t UTF-8 a.txt > a.txt.utf8"),
        ("a.txt.gz", "zcat a.txt.gz | iconv -f UTF-16 -t UTF-8 | gzip > a.txt.utf8.gz"),
        ("standard input", "pipe it through iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_the_suggested_command_converts_the_given_input(place: str, command: str) -> None:
    assert convert_command(place, "UTF-16") == command


def test_read_bytes_requires_a_regular_file_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        for read in (read_bytes, sha256_of):
            with pytest.raises(OSError, match="not a regular file"):
                read(path)
    monkeypatch.setattr(reading, "MAX_FILE", 10)
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(OSError, match="more than"):
        read_bytes(tmp_path / "large")


def test_garbage_after_a_gzip_stream_is_reported_with_the_last_good_line(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n" * 200) + b"garbage!")
    with pytest.raises(
        DataError, match=r"a\.gz is damaged: its gzip stream continues after line 200 with bytes that are not gzip"
    ):
        list(read_lines(path))


def test_a_file_that_its_reader_left_open_is_closed_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo\n")
    file = reading.open_raw(tmp_path / "text")
    number = file.fileno()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        del file
        gc.collect()
    assert not shown
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
