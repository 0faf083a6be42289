"""The command `heed explain`."""

from __future__ import annotations

import html
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_recipe

from heedful.tasks.translation.predictor import Translator

SENTENCE = "w3 w1 w4 w15"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    assert heed("train", write_recipe(folder), "training.steps=6", "--run", folder / "run") == 0
    return folder / "run"


def explain_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert heed("explain", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 2) -> str:
    capsys.readouterr()
    assert heed("explain", *arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_without_arguments_the_topics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    topics = explain_json(capsys)["topics"]
    assert {
        "attention",
        "masked",
        "look-up",
        "scaling",
        "positions",
        "norms",
        "loss",
        "batch",
        "search",
        "sampling",
        "schedule",
        "masking",
        "hierarchical",
    } == set(topics)
    assert heed("explain") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(topics)
    assert heed("explain", "attention") == 0
    assert "-2.0015  -3.9898" in capsys.readouterr().out


def test_html_is_written_to_the_given_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("explain", "masked", "--html", tmp_path / "page.html") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "page.html" in captured.err
    assert "0.9995" in (tmp_path / "page.html").read_text(encoding="utf-8")
    page = tmp_path / "no" / "page.html"
    assert f"{page} cannot be written" in error_of(capsys, "masked", "--html", page, code=4)


def test_a_run_is_explained_with_its_own_numbers(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = explain_json(capsys, trained, SENTENCE, "--layer", "1", "--head", "1", "--kind", "encoder", "--token", "w1")
    checks = [check for stage in head["stages"] for check in stage["checks"]]
    assert len(checks) == 6 and all(check["holds"] for check in checks)
    tree = explain_json(capsys, trained, SENTENCE, "--tree", "-s", "beam=3", "-s", "n_best=2")
    (translation,) = Translator.load(trained).translations([SENTENCE], beam=3, n_best=2)
    assert [row[0] for row in tree["stages"][0]["matrices"][0]["cells"]] == [one.text for one in translation.candidates]
    step = explain_json(capsys, trained, SENTENCE, "--step", "--target", "w4 w1")
    assert step["stages"][3]["matrices"][0]["rows"] == ["all", "others", "words"]
    batch = explain_json(capsys, trained, SENTENCE, "w1 w2", "--batch")
    assert batch["stages"][0]["matrices"][0]["rows"] == ["pair 1", "pair 2"]


def test_rows_labeled_by_predicted_tokens_have_a_note(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = trained, SENTENCE, "--target", "w4 w1"
    for kind, index, fed, predicted in (("decoder", "0", "<s>", "w4"), ("cross", "1", "w4", "w1")):
        note = f"the decoder's input there is the previous token: {fed} where '{predicted}' is predicted."
        stages = explain_json(capsys, *given, "--kind", kind, "--token", index)["stages"]
        tables = [stage for stage in stages if any(len(matrix["rows"]) > 1 for matrix in stage["matrices"])]
        noted = {stage["title"] for stage in tables if note in stage["why"]}
        assert noted == {"Input", "Softmax"}
        assert heed("explain", *given, "--kind", kind, "--token", index, "--html", tmp_path / "page.html") == 0
        assert html.escape(note) in (tmp_path / "page.html").read_text()
        capsys.readouterr()
        assert heed("explain", *given, "--kind", kind, "--token", index) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert note in output
    encoder = explain_json(capsys, *given, "--kind", "encoder")["stages"]
    assert encoder and not any("labeled by" in stage["why"] for stage in encoder)


@pytest.mark.parametrize("mode", ["--step", "--batch", "--json"])
def test_unknown_words_are_reported(trained: Path, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    def warnings_of(*arguments: str) -> str:
        capsys.readouterr()
        assert heed("explain", trained, *arguments, mode) == 0
        return capsys.readouterr().err

    assert "vocabulary" not in warnings_of(SENTENCE, "--target", "w4 w1")
    known = "warning: not in the model's vocabulary: zebra, gnu, yak; the output for unknown words is unreliable\n"
    assert warnings_of("w3 zebra, gnu w1 zebra", "--target", "w4 yak gnu") == known


def test_options_without_effect_are_errors(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode, option in product(("--step", "--tree", "--batch"), (("--layer", "1"), ("--token", "w3"), ("--kind", "encoder"))):
        assert f"{option[0][2:]} was given, which has no effect on the explanation of a {mode[2:]}" in error_of(
            capsys, trained, SENTENCE, mode, *option
        )
    assert "target was given, which has no effect" in error_of(capsys, trained, SENTENCE, "--tree", "--target", "w4")
    assert "2 targets were given" in error_of(capsys, trained, SENTENCE, "--target", "w4", "--target", "w3")


def test_user_errors_are_one_sentence(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'atention' is neither a topic nor a run folder" in (error := error_of(capsys, "atention"))
    assert "did you mean 'attention'?" in error
    assert "takes no text" in error_of(capsys, "attention", "a sentence")
    assert "layer or head" in error_of(capsys, "attention", "--layer", "1")
    assert "a text is missing" in error_of(capsys, trained)
    for empty in ("", " "):
        assert "given an empty text, expected at least one word" in error_of(capsys, trained, empty)
        assert "given an empty text" in error_of(capsys, trained, empty, "--step")
        for mode in ([], ["--step"], ["--batch"]):
            given = error_of(capsys, trained, SENTENCE, "--target", empty, *mode)
            assert "expected at least one word" in given and "given an empty" in given
    assert "expected one, in quotes" in error_of(capsys, trained, "w1", "w2")
    assert "--step and --tree were given" in error_of(capsys, trained, "w1", "--step", "--tree")
    assert "head: given 7, expected 0 to 1" in error_of(capsys, trained, "w1", "--head", "7")
    assert "has no tree" in error_of(capsys, trained, "w1", "--tree", "-s", "method=sample")
