"""heed vectors and heed neighbors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

from heedful.runs.load import load
from heedful.text import Tokenizer
from heedful.vectors.files import load_vectors
from heedful.vectors.initialization import initialize_rows
from heedful.vectors.tokens import token_names

TEXT = "The dog sees the cat.\nThe hen sees the cat.\n" * 40
QUICK = ("--dim", "8", "--epochs", "1", "--subsample", "0")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert heed("train", write_recipe(folder), "--run", folder / "run", "training.steps=2", "--device", "cpu") == 0
    return folder / "run"


def test_vectors_are_trained_for_the_words_of_a_text(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = text.with_name("v.txt")
    assert heed("vectors", text, "--output", output, "--lowercase", "--json", *QUICK) == 0
    result = json.loads(capsys.readouterr().out)
    vectors = load_vectors(output)
    assert set(vectors.words) == {"the", "dog", "sees", "cat", "￭.", "hen"} and vectors.words[0] == "the"
    assert result["words"] == 6 and result["dim"] == 8 == vectors.dim and result["tokens"] == 80 * 6
    assert torch.isfinite(vectors.values).all()


def test_the_same_command_writes_the_same_file_from_several_texts(text: Path) -> None:
    first, second = text.with_name("a.safetensors"), text.with_name("b.safetensors")
    for output in (first, second):
        assert heed("vectors", text, text, "--output", output, *QUICK) == 0
    assert first.read_bytes() == second.read_bytes()


def test_vectors_of_a_runs_tokens_fill_its_embedding(run: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "t.txt", tmp_path / "v.safetensors"
    text.write_text("w1 w2 w3\nw3 w2 w1 unknown\n" * 10)
    assert heed("vectors", text, "--output", output, "--tokenizer", run, "--dim", "16", "--epochs", "1") == 0
    vectors = load_vectors(output)
    names = token_names(Tokenizer.load(run / "tokenizer.json"))
    assert sorted(vectors.words) == ["w1", "w2", "w3"]
    assert initialize_rows(torch.nn.Embedding(len(names), 16), names, vectors) == 3


def test_vectors_and_neighbors_share_a_default_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert heed("neighbors", "king") == 2
    assert "vectors.vec does not exist" in capsys.readouterr().err
    Path("text.txt").write_text("the king and the queen\n" * 30)
    assert heed("vectors", "text.txt", "--dim", "4", "--epochs", "1") == 0
    assert heed("neighbors", "king", "--count", "2") == 0
    assert capsys.readouterr().out.startswith("king")


def test_neighbors_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.vec").write_text("4 2\nking 1 1\nman 0 1\nqueen 1 0\napple -1 0\n")
    assert heed("neighbors", "king", "-", "man", "apple", "--count", "2", "--vectors", tmp_path / "v.vec") == 0
    assert capsys.readouterr().out == (
        "king - man  cosine\nqueen       0.924\napple       -0.924\n\napple  cosine\nman    0.000\nking   -0.707\n"
    )
    assert heed("neighbors", "king", "--vectors", tmp_path / "v.vec", "--count", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["queries"][0]["neighbors"] == [{"word": "man", "cosine": pytest.approx(0.5**0.5)}]


def test_an_unknown_word_is_reported_and_the_others_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.vec").write_text("3 2\nking 1 1\nman 1 0\napple 0 -1\n")
    words = ("neighbors", "dog", "king", "man", "+", "cat", "--vectors", tmp_path / "v.vec", "--count", "1")
    assert heed(*words) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["king", "man"]
    assert "unknown word 'dog'" in shown.err and "unknown word 'cat'" in shown.err
    assert heed(*words, "--json") == 0
    assert [one["query"] for one in json.loads(capsys.readouterr().out)["queries"]] == ["king"]
    assert heed("neighbors", "dog", "cat", "--vectors", tmp_path / "v.vec") == 3
    shown = capsys.readouterr()
    assert shown.out == "" and "unknown word 'dog'" in shown.err


def test_neighbors_in_the_embedding_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("neighbors", "w1", "--vectors", run, "--count", "3", "--json") == 0
    result = json.loads(capsys.readouterr().out)["queries"][0]["neighbors"]
    table = load(run, device="cpu").model.embedding.target.weight.detach()
    names = token_names(Tokenizer.load(run / "tokenizer.json"))
    cosines = torch.cosine_similarity(table, table[names.index("w1")][None])
    expected = [names[row] for row in cosines.argsort(descending=True).tolist() if names[row] != "w1"]
    assert [near["word"] for near in result] == expected[:3]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("neighbors", "kign", "--vectors", "v.vec"), 3, "unknown word 'kign'"),
        (("neighbors", "king", "--vectors", "none.vec"), 3, "none.vec does not exist"),
        (("neighbors", "king", "+", "--vectors", "v.vec"), 2, "a word is missing at the end"),
        (("vectors", "v.vec", "--output", "v.bin"), 2, "has an unknown suffix for a vectors file"),
        (("vectors", "none.txt", "--output", "o.txt"), 3, "none.txt does not exist"),
        (("vectors", "v.vec", "--output", "o.txt", "--dim", "0"), 2, "--dim"),
        (("vectors", "v.vec", "--output", "o.txt", "--tokenizer", "nowhere"), 4, "nowhere"),
    ],
)
def test_mistakes_are_one_message(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.vec").write_text("2 2\nking 1 1\nman 0 1\n")
    assert heed(*arguments) == code
    assert message in capsys.readouterr().err
    assert not Path("o.txt").exists()


def test_a_pipe_is_refused_where_it_would_be_read_twice(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a run's tokenizer the text is read once."""
    for arguments, code in (((), 3), (("--tokenizer", str(run), "--min-count", "1"), 0)):
        read, write = os.pipe()
        os.write(write, b"w1 w2 w3\nw2 w3 w4\n" * 40)
        os.close(write)
        assert heed("vectors", f"/dev/fd/{read}", "--output", tmp_path / "v.txt", *QUICK, *arguments) == code
        os.close(read)
        assert ("can be read only once; expected a file" in capsys.readouterr().err) == (code == 3)
