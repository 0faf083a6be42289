from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from heedful.errors import ConfigError, DataError
from heedful.vectors.files import check_output, load_vectors, save_vectors
from heedful.vectors.table import Vectors

SOME = Vectors(["the", "▁café", "\N{NO-BREAK SPACE}", "-"], torch.randn(4, 5, generator=torch.Generator().manual_seed(1)) / 7e5)


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.safetensors"])
def test_saved_vectors_are_loaded_bit_for_bit(name: str, tmp_path: Path) -> None:
    save_vectors(SOME, tmp_path / name)
    loaded = load_vectors(tmp_path / name)
    assert list(loaded.words) == SOME.words and torch.equal(loaded.values, SOME.values)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_text_format_is_that_of_word2vec(tmp_path: Path) -> None:
    save_vectors(Vectors(["a", "b"], torch.tensor([[0.5, -2.0, 0.1], [1e-10, 3.0, 0.0]])), tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_text() == "2 3\na 0.5 -2 0.100000001\nb 1.00000001e-10 3 0\n"


def test_text_is_read_gzipped_without_its_first_line_and_with_spaces_at_line_ends(tmp_path: Path) -> None:
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"a 1 2 3 \nb 4 5 6 \n"))
    loaded = load_vectors(tmp_path / "v.txt.gz")
    assert loaded.words == ["a", "b"] and loaded.values.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 3\na 1 2 3\n", "has 1 vectors; expected 2, as stated in its first line"),
        ("2 3\na 1 2 3\nb 1 2\n", "line 3 has 2 numbers; expected 3"),
        ("a 1 2 3\nb 1 2 x\n", "line 2 is b'b 1 2 x'; expected a word and its finite numbers"),
        ("a\n", "line 1 is b'a'; expected a word and its finite numbers"),
        ("0 3\n", "has 0 vectors; expected at least one"),
    ],
)
def test_a_broken_text_is_an_error_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_vectors(path)
    assert str(caught.value.args[0]).startswith(str(path)) and message in str(caught.value.args[0])


def test_a_broken_or_foreign_safetensors_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    for broken in (b"", b"no", b"\x00" * 100):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="is not a file of vectors"):
            load_vectors(path)
    save_file({"vectors": torch.zeros(3, 2)}, path)
    with pytest.raises(DataError, match="is not a file of vectors"):
        load_vectors(path)
    save_file({"vectors": torch.zeros(3, 2)}, path, {"words": '["a"]'})
    with pytest.raises(DataError, match="1 words but 3 vectors"):
        load_vectors(path)


@pytest.mark.parametrize("name", ["none.txt", "none.safetensors"])
def test_a_missing_file_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{name} does not exist"):
        load_vectors(tmp_path / name)


def test_file_names_that_cannot_be_written_are_errors_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"v\.bin has an unknown suffix for a vectors file; expected one of: \.txt, \.vec"):
        check_output(tmp_path / "v.bin")
    with pytest.raises(ConfigError, match="does not exist"):
        check_output(tmp_path / "nowhere" / "v.txt")
    with pytest.raises(DataError, match="cannot be written in the text format"):
        save_vectors(Vectors(["a b"], torch.zeros(1, 2)), tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []
