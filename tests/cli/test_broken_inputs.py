"""Twenty broken inputs: images, rows, edges and dates. Training on each ends with one sentence and exit code 3
and writes nothing; a run that was trained before keeps every byte, and continues once the file is restored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_tasks import plain_image, write_tiny_recipe
from workshop import heed


class Broken(NamedTuple):
    """A part of a file that is replaced at its first place, and what the sentence says."""

    file: str
    before: str
    after: str
    sentence: str


RED = plain_image(220, 20)
IMAGES = {
    "truncated": Broken("red.ppm", RED, RED[:60], "images.csv line 2, red.ppm: it is truncated or damaged"),
    "no image": Broken("red.ppm", RED, "a caption\n", "line 2, red.ppm: it is not an image in a known format; expected PNG"),
    "another size": Broken("red.ppm", "8 6", "4 12", "line 2, red.ppm: it is 4 pixels wide and 12 high, expected 8 and 6"),
    "a path without a file": Broken("images.csv", "red.ppm", "rot.ppm", "line 2, rot.ppm: it cannot be read: No such file"),
    "no label": Broken("images.csv", "red.ppm,yes", "red.ppm,", "line 2: column 'label' is empty; expected a path and a label"),
}
ROWS = {
    "not a number": Broken("motions.csv", "\n1,yes,1,1", "\n1,yes,one,1", "line 6, column 'x': 'one' is not a number"),
    "a cell too many": Broken("motions.csv", "\n1,yes,1,1", "\n1,yes,1,1,1", "line 6 has 5 columns; expected 4"),
    "a missing value": Broken("motions.csv", "\n1,yes,1,1", "\n1,yes,,1", "line 6: the value of column 'x' is missing"),
    "two labels": Broken("motions.csv", "\n1,yes,1,1", "\n1,no,1,1", "line 6: series '1' has the labels 'yes' and 'no'"),
    "not UTF-8": Broken("motions.csv", "\n1,yes,1,1", "\n1,caf\udce9,1,1", "line 6: byte 6 is not UTF-8"),
}
EDGES = {
    "an unknown node": Broken("edges.csv", "b,d", "b,e", "edges.csv line 3: there is no node 'e'; expected the names of two"),
    "a single node": Broken("edges.csv", "b,d", "b", "edges.csv line 3 has 1 column; expected 2"),
    "an empty cell": Broken("edges.csv", "b,d", "b,", "edges.csv line 3: there is no node ''; expected the names of two"),
    "another header": Broken("edges.csv", "source,target", "from,to", "line 1 has no column 'source', which a table of edges"),
    "an empty file": Broken("edges.csv", "source,target\na,c\nb,d\n", "", "edges.csv is empty; expected at least one line"),
}
DATES = {
    "not a date": Broken(
        "series.csv", "2021-08-10", "10 August", "line 14, column 'date': '10 August' is not a time; expected"
    ),
    "a repeated date": Broken("series.csv", "2021-08-10", "2021-08-09", "2021-08-09 00:00:00 is not after 2021-08-09"),
    "an earlier date": Broken("series.csv", "2021-08-10", "2020-08-10", "line 14, column 'date': 2020-08-10 00:00:00 is not"),
    "a time zone": Broken("series.csv", "2021-08-10", "2021-08-10 00:00+00:00", "line 14, column 'date': only one of"),
    "an empty cell": Broken("series.csv", "2021-08-10", "", "line 14, column 'date': '' is not a time; expected ISO 8601"),
}
TASKS = {
    "image_classification": IMAGES,
    "series_classification": ROWS,
    "node_classification": EDGES,
    "forecasting": DATES,
}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The recipe of each task, beside a run of two steps; at the end all runs are continued."""
    folders = {task: tmp_path_factory.mktemp(task) for task in TASKS}
    recipes = {task: write_tiny_recipe(task, folder) for task, folder in folders.items()}
    for task, recipe in recipes.items():
        assert heed("train", recipe, "training.steps=2", "--run", folders[task] / "run") == 0
    yield recipes
    for task, recipe in recipes.items():
        assert heed("train", recipe, "training.steps=4", "--run", folders[task] / "run") == 0
        assert (folders[task] / "run" / "checkpoints" / "step-4").is_dir()


def digests(folder: Path) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("task", "case"), [(task, case) for task, cases in TASKS.items() for case in cases])
def test_training_on_a_broken_input_ends_with_one_sentence_and_changes_nothing(
    task: str, case: str, recipes: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, broken = recipes[task], TASKS[task][case]
    folder = recipe.parent
    file = folder / broken.file
    whole = file.read_text()
    assert broken.before in whole
    file.write_bytes(whole.replace(broken.before, broken.after, 1).encode(errors="surrogateescape"))
    before = digests(folder)
    capsys.readouterr()
    try:
        assert heed("train", recipe, "--run", folder / "another") == 3
        output = capsys.readouterr()
        assert heed("train", recipe, "training.steps=4", "--run", folder / "run") == 3
        assert digests(folder) == before
    finally:
        file.write_text(whole)
    sentence, _, _ = output.err.partition("error: ")[2].partition("\n\nhint: ")
    assert broken.sentence in sentence and str(folder / broken.file.replace("red.ppm", "images.csv")) in sentence
    assert output.out == "" and "\n" not in sentence.strip() and "Traceback" not in output.err
