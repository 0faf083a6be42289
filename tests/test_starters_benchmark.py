"""The trials of starter recipes: data for every task that its recipe accepts, and baselines worked by hand."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import starters
from workshop import heed

from heedful.data.hash_split import split_by_hash
from heedful.tasks import TASKS

pytestmark = pytest.mark.benchmark
ROWS = 40
QUICK = ["training.minutes=0", *(f"training.{name}=1" for name in ("steps", "save_every", "validate_every"))]
TINY = ["model.dim=16", "search={beam=1, max_extra=2}"]


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny files with the names and formats of the corpora."""
    words = [f"w{n} x{n} y{n} z{n}" for n in range(ROWS)]
    paragraphs = [text for one in words for text in (f" = {one} = ", f" {one} . two {one} . ") * 4]
    files = {"sst2/train.tsv": "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(words))}
    for split in ("train", "valid", "test"):
        rows = "".join(f"# text\n1\t{text.split()[0]}\t_\tNOUN\n2\tis\t_\tVERB\n\n" for text in words)
        files |= {f"ud-en-ewt/{split}.conllu": rows, f"wikitext2/{split}.txt": "\n \n".join(paragraphs)}
        files[f"dialogue-sgd/{split}.txt"] = "".join(f"ask {text}\treply {text}\tgo on {text}\tno {text}\n" for text in words)
    for split in ("train", "valid", "test2016"):
        files |= {
            f"multi30k/{split}.{language}": "".join(f"{language} {text}\n" for text in words) for language in ("en", "de")
        }
    hours = [f"2016-07-{1 + hour // 24:02} {hour % 24:02}:00:00,{hour % 24},{hour % 5}\n" for hour in range(240)]
    (tmp_path / "etth1").mkdir()
    (tmp_path / "etth1/ETTh1.csv.gz").write_bytes(gzip.compress(f"date,HUFL,OT\n{''.join(hours)}".encode()))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("HEED_DATA", str(tmp_path))
    return tmp_path


def in_process(*arguments: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert heed(*arguments) == 0
    return out.getvalue()


def test_every_task_has_a_trial() -> None:
    assert starters.TRIALS.keys() == TASKS.keys()


@pytest.mark.parametrize("task", list(TASKS))
def test_the_recipe_accepts_the_rows_of_the_corpus(task: str, corpora: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    in_process("new", task, folder)
    before = {path.name for path in folder.iterdir()}
    starters.TRIALS[task].write(folder, ROWS)
    assert {path.name for path in folder.iterdir()} == before  # the example files are replaced, and no others written
    assert "error" not in in_process("data", "check", folder / "recipe.toml")


@pytest.mark.parametrize("task", [name for name in TASKS if name not in ("classification", "tagging", "masked")])
def test_a_trial_trains_evaluates_and_compares(task: str, corpora: Path, tmp_path: Path) -> None:
    changes = [*QUICK, *(TINY if task == "translation" else []), *(["tokenizer.vocab=300"] if task == "language" else [])]
    output = tmp_path / "starters.json"
    options = [part for change in changes for part in ("--change", change)]
    assert starters.main([task, "--rows", str(ROWS), "--output", str(output), *options], in_process) == 0
    (result,) = json.loads(output.read_text())["starters"]
    assert result["task"] == task and result["train_seconds"] > 0 and np.isfinite(result["value"]) and result["baselines"]
    assert all(np.isfinite(value) for value in result["baselines"].values())


def test_words_that_are_rare_weigh_more() -> None:
    scores = starters.word_similarities(["the cat", "dog"], ["the dog", "the cat", "the the"])
    assert scores.shape == (2, 3) and scores[0].argmax() == 1 and scores[1].argmax() == 0
    assert scores[1, 1] == 0 and scores[0, 1] == pytest.approx(1.0)


def test_generated_questions_are_no_near_duplicates(tmp_path: Path) -> None:
    starters.write_span(tmp_path, 2000)
    rows = [json.loads(line) for line in (tmp_path / "examples.jsonl").read_text().splitlines()]
    assert all(row["context"][row["answer_start"] :].startswith(row["answer"]) for row in rows) and len(rows) == 2000
    parts = split_by_hash([row["context"] for row in rows], (0.6, 0.2, 0.2))
    assert all(parts.count(part) > 300 for part in ("train", "valid", "test"))


def test_a_result_is_added_to_those_of_other_tasks(tmp_path: Path) -> None:
    path = tmp_path / "starters.json"
    for task, value in (("span", 0.1), ("tagging", 0.2), ("span", 0.3)):
        starters.merge_results(path, {"task": task, "value": value})
    assert [(one["task"], one["value"]) for one in json.loads(path.read_text())["starters"]] == [
        ("tagging", 0.2),
        ("span", 0.3),
    ]


def test_counts_give_the_perplexity_that_a_sum_by_hand_gives() -> None:
    found = starters.counted_tokens([[0, 1, 2], [0, 1, 1]], [[0, 1, 1]], vocab=4)
    single = 4 / 8  # of token 1: three of four, and one more for each of four tokens
    pairs = [0.7 * 1 + 0.3 * single, 0.7 * 0.5 + 0.3 * single]  # 0 is always followed by 1, 1 in half of the cases
    assert found == pytest.approx({"single tokens": 1 / single, "pairs of tokens": (pairs[0] * pairs[1]) ** -0.5})


def test_sentences_are_lines_and_paragraphs_are_documents(corpora: Path, tmp_path: Path) -> None:
    starters.write_sentences(tmp_path, 6)
    line = "w0 x0 y0 z0 ."
    assert (tmp_path / "train.txt").read_text().splitlines() == [line, f"two {line}", "", line, f"two {line}", ""]
