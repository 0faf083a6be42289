"""heed explain as a user types it."""

from __future__ import annotations

import html
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_recipe

from heedful.build import load

SENTENCE = "w3 w1 w4 w15"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    assert heed("train", write_recipe(folder), "training.steps=6", "--run", folder / "run") == 0
    return folder / "run"


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert heed("explain", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert heed("explain", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_without_arguments_the_topics_are_listed_and_each_of_them_explains(capsys: pytest.CaptureFixture[str]) -> None:
    topics = told(capsys)["topics"]
    assert {
        "attention",
        "masked",
        "look-up",
        "thinking",
        "positions",
        "loss",
        "batch",
        "search",
        "sampling",
        "schedule",
    } == set(topics)
    assert heed("explain") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(topics)
    assert heed("explain", "attention") == 0
    assert "-2.0015  -3.9898" in capsys.readouterr().out


def test_a_page_is_written_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("explain", "masked", "--html", tmp_path / "page.html") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "page.html" in captured.err
    assert "0.9995" in (tmp_path / "page.html").read_text(encoding="utf-8")
    page = tmp_path / "no" / "page.html"
    assert f"{page} cannot be written" in complaint(capsys, "masked", "--html", page)


def test_a_run_is_explained_by_its_own_numbers(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = told(capsys, trained, SENTENCE, "--layer", "1", "--head", "1", "--kind", "encoder", "--token", "w1")
    checks = [check for stage in head["stages"] for check in stage["checks"]]
    assert len(checks) == 6 and all(check["holds"] for check in checks)
    found = told(capsys, trained, SENTENCE, "--tree", "-s", "beam=3", "-s", "n_best=2")
    (translation,) = load(trained).translations([SENTENCE], beam=3, n_best=2)
    assert [row[0] for row in found["stages"][0]["matrices"][0]["cells"]] == [one.text for one in translation.candidates]
    step = told(capsys, trained, SENTENCE, "--step", "--target", "w4 w1")
    assert step["stages"][3]["matrices"][0]["rows"] == ["all", "others", "words"]
    batch = told(capsys, trained, SENTENCE, "w1 w2", "--batch")
    assert batch["stages"][0]["matrices"][0]["rows"] == ["pair 1", "pair 2"]


def test_rows_that_are_named_by_what_is_said_say_so_where_they_are_drawn(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = trained, SENTENCE, "--target", "w4 w1"
    for kind, at, fed, said in (("decoder", "0", "<s>", "w4"), ("cross", "1", "w4", "w1")):
        naming = f"the token that stands there is the one before it: {fed} where '{said}' is said."
        stages = told(capsys, *given, "--kind", kind, "--token", at)["stages"]
        drawn = [stage for stage in stages if any(len(matrix["rows"]) > 1 for matrix in stage["matrices"])]
        named = {stage["title"] for stage in drawn if naming in stage["why"]}
        assert named == {"What comes in", "Softmax"}
        assert heed("explain", *given, "--kind", kind, "--token", at, "--html", tmp_path / "page.html") == 0
        assert html.escape(naming) in (tmp_path / "page.html").read_text()
        capsys.readouterr()
        assert heed("explain", *given, "--kind", kind, "--token", at) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert naming in shown and "below it" not in shown
    encoder = told(capsys, *given, "--kind", "encoder")["stages"]
    assert encoder and not any("named by" in stage["why"] for stage in encoder)


@pytest.mark.parametrize("way", ["--step", "--batch", "--json"])
def test_words_that_the_model_does_not_know_are_named(trained: Path, capsys: pytest.CaptureFixture[str], way: str) -> None:
    def talk(*arguments: str) -> str:
        capsys.readouterr()
        assert heed("explain", trained, *arguments, way) == 0
        return capsys.readouterr().err

    assert "vocabulary" not in talk(SENTENCE, "--target", "w4 w1")
    known = "warning: not in the model's vocabulary: zebra, gnu, yak; the output for unknown words is unreliable\n"
    assert talk("w3 zebra, gnu w1 zebra", "--target", "w4 yak gnu") == known


def test_options_that_do_nothing_are_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for way, option in product(("--step", "--tree", "--batch"), (("--layer", "1"), ("--token", "w3"), ("--kind", "encoder"))):
        assert f"{option[0]} was given, which has no effect with {way}" in complaint(capsys, trained, SENTENCE, way, *option)
    assert "--target was given, which has no effect" in complaint(capsys, trained, SENTENCE, "--tree", "--target", "w4")
    assert "2 targets were given" in complaint(capsys, trained, SENTENCE, "--target", "w4", "--target", "w3")


def test_mistakes_get_one_sentence(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'atention' is neither a topic nor a run folder" in (said := complaint(capsys, "atention"))
    assert "did you mean 'attention'?" in said
    assert "takes no sentence" in complaint(capsys, "attention", "a sentence")
    assert "layer or head" in complaint(capsys, "attention", "--layer", "1")
    assert "a sentence is missing" in complaint(capsys, trained)
    for empty in ("", " "):
        assert "an empty sentence was given; expected one that has words" in complaint(capsys, trained, empty)
        assert "an empty sentence was given" in complaint(capsys, trained, empty, "--step")
        for way in ([], ["--step"], ["--batch"]):
            assert "an empty target was given; expected one" in complaint(capsys, trained, SENTENCE, "--target", empty, *way)
    assert "expected one, in quotes" in complaint(capsys, trained, "w1", "w2")
    assert "--step and --tree were given" in complaint(capsys, trained, "w1", "--step", "--tree")
    assert "--head: given 7, expected 0 to 1" in complaint(capsys, trained, "w1", "--head", "7")
    assert "has no tree" in complaint(capsys, trained, "w1", "--tree", "-s", "method=sample")
