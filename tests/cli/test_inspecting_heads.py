"""heed inspect --heads: the table and the picture of heads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import heed, write_recipe

from heedful.errors import ConfigError
from heedful.inspection.analyses.heads import compute, draw, explain_colors, explain_marks, format_text
from heedful.inspection.drawing.head_figures import Cell
from heedful.tasks.translation.predictor import Translator

TREES = "\n".join(
    "\t".join([str(at), f"w{at}", *"____", str(at - 1), "nsubj" if at > 1 else "root", "_", "_"]) for at in range(1, 6)
)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("heads")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def test_all_heads_of_the_runs_own_data_as_json_as_text_and_as_a_picture(translator: Translator, tmp_path: Path) -> None:
    result = compute(translator, sentences=20)
    assert json.loads(json.dumps(result)) == result
    assert (result["sentences"], result["left_out"], len(result["heads"])) == (20, 0, 12)
    assert result["frequencies"] == "the first 60 lines of the training text"
    text = format_text(result)
    assert len([line for line in text.splitlines() if line.startswith(("encoder ", "decoder ", "cross "))]) == 12
    draw(result, tmp_path / "heads.svg")
    assert "encoder" in (tmp_path / "heads.svg").read_text() or (tmp_path / "heads.svg").stat().st_size > 10_000


def test_roles_are_shown_with_their_shares_and_baselines() -> None:
    head = {"kind": "encoder", "layer": 0, "head": 1, "confidence": None, "share": 0.5, "ablation": 0.1, "relevance": None}
    roles = [
        {"role": "positional", "what": "-1", "value": 0.957, "baseline": None},
        {"role": "syntactic", "what": "obj to head", "value": 0.6, "baseline": 0.4},
        {"role": "alignment", "what": "", "value": 0.9, "baseline": 0.5},
    ]
    result = {"corpus": "x", "sentences": 1, "left_out": 2, "loss": 1.0, "frequencies": "y"}
    leanings = [{"role": "positional", "what": "+1", "value": 0.77, "baseline": None}]
    text = format_text(result | {"heads": [head | {"roles": roles, "leanings": leanings, "alignment_error": 0.123}]})
    words = " ".join(text.split())
    assert "position -1 96%, obj to head 60% (40%), alignment 90% (50%), AER 12.3%, mostly position +1 77%" in words
    assert "2 left out" in text


def test_a_column_without_values_is_omitted_and_a_share_near_half_has_a_decimal() -> None:
    head = {"kind": "cross", "layer": 0, "head": 0, "confidence": 0.5, "share": 1.0, "ablation": 0.1, "roles": []}
    head |= {"leanings": [{"role": "positional", "what": "itself", "value": 0.504, "baseline": None}], "alignment_error": None}
    result = {"corpus": "x", "sentences": 1, "left_out": 0, "loss": 1.0, "frequencies": "y"}
    with_it, without = (format_text(result | {"heads": [head | {"relevance": known}]}) for known in (0.3, None))
    assert "relevance  role" in with_it and "not defined for this family" not in with_it
    assert (
        "ablation  role" in without
        and "relevance: not defined for this family" in without
        and "share of the layer" not in without
    )
    assert "mostly position itself 50.4%" in without


def test_only_colors_that_occur_are_explained() -> None:
    lost, gained, nothing = (Cell("cross", 0, 0, importance, []) for importance in (0.1, -0.1, -1e-6))
    assert "orange" in explain_colors([lost, gained]) and "orange" not in explain_colors([lost, nothing])


def test_token_frequencies_are_named_only_if_a_head_attends_to_rare_tokens() -> None:
    head = {"kind": "encoder", "layer": 0, "head": 1, "confidence": 0.5, "share": 0.5, "ablation": 0.1, "relevance": None}
    roles = [{"role": "rare", "what": "", "value": 0.9, "baseline": 0.5}]
    result = {"corpus": "x", "sentences": 1, "left_out": 0, "loss": 1.0, "frequencies": "the first 60 lines"}
    texts = {
        seeks: format_text(result | {"heads": [head | {"roles": roles * seeks, "leanings": [], "alignment_error": None}]})
        for seeks in (True, False)
    }
    assert "rare: by token frequency in the first 60 lines." in texts[True] and "rare:" not in texts[False]


@pytest.mark.parametrize(
    ("marks", "meaning"),
    [
        ([], ""),
        (["align"], "attends to — align: the aligned word"),
        (["(itself)"], "attends to — itself: the same token · in parentheses: mostly"),
        (["-1", "+3"], "attends to — -1: the previous token · +3: 3 tokens after"),
        (
            ["obj→h", "obj→d", "rare"],
            "attends to — obj→h: the syntactic head of obj · obj→d: the obj of a syntactic head · rare: the rarest token",
        ),
    ],
)
def test_only_marks_that_occur_are_explained(marks: list[str], meaning: str) -> None:
    assert explain_marks([Cell("cross", 0, 0, 0.1, []), Cell("cross", 0, 1, 0.1, marks)]) == meaning


def test_trees_and_lines_can_be_given(translator: Translator, tmp_path: Path) -> None:
    trees, lines = tmp_path / "trees.conllu", tmp_path / "lines.tsv"
    trees.write_text(f"{TREES}\n\n" * 3)
    lines.write_text("w1 w2\tw2 w1\t0-1 1-0\nw3\tw3\t0-0\n")
    of_trees, of_lines = compute(translator, conllu=trees), compute(translator, data=lines)
    syntactic = [one for one in of_trees["heads"][0]["measures"] if one["role"] == "syntactic"]
    assert [(one["what"], one["cases"]) for one in syntactic] == [("nsubj to head", 12), ("nsubj to dependent", 12)]
    cross = [head for head in of_lines["heads"] if head["kind"] == "cross"]
    assert cross and all(head["alignment_error"] is not None for head in cross)
    with pytest.raises(ConfigError, match="expected one of them"):
        compute(translator, data=lines, conllu=trees)


def test_without_training_text_frequencies_are_counted_in_the_samples(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("w1 w2 w3\nw4 w5\n")
    (corpus,) = translator.run.data.train
    gone = translator.run.data.model_copy(update={"train": (corpus.model_copy(update={"tsv": str(tmp_path / "gone.tsv")}),)})
    monkeypatch.setattr(translator, "run", translator.run.model_copy(update={"data": gone}))
    assert compute(translator, data=lines)["frequencies"] == "these sentences, because the training text is missing"


@pytest.mark.parametrize(("terminal", "json", "shown"), [(True, False, True), (True, True, False), (False, False, False)])
def test_a_progress_bar_is_shown_on_a_terminal_without_json(
    translator: Translator,
    terminal: bool,
    json: bool,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    run = translator.checkpoint.parent.parent
    assert heed("inspect", run, "--heads", "--sentences", "5", *["--json"] * json) == 0
    output = capsys.readouterr()
    assert ("heads, 5 sentences" in output.err and "100%" in output.err) == shown and "heads, 5 sentences" not in output.out
