"""heedful.inspection.heads: role and importance of every head, for every task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_recipe

import heedful
from heedful.errors import ConfigError, DataError
from heedful.inspection.analyses.heads import HeadsResult, explain_colors, explain_marks, heads
from heedful.inspection.drawing.head_figures import Cell
from heedful.inspection.measures.head_importance import HeadResult
from heedful.inspection.measures.roles import Measure
from heedful.tasks.translation.predictor import Translator

TREES = "\n".join(
    "\t".join([str(at), f"w{at}", *"____", str(at - 1), "nsubj" if at > 1 else "root", "_", "_"]) for at in range(1, 6)
)

KINDS = ("encoder", "decoder")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("heads")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def result_of(*measures: Measure, **changes: Any) -> HeadsResult:
    """The result of one head."""
    numbers: dict[str, Any] = {"confidence": 0.5, "alignment_error": None, "relevance": None} | changes
    head = HeadResult("encoder", 0, 1, measures=list(measures), gradient=0.2, share=0.5, ablation=0.1, **numbers)
    return HeadsResult("x", 1, 2, 1.0, "token", "the first 60 lines", [head])


def test_all_heads_of_the_runs_own_data_as_json_as_text_and_as_a_picture(translator: Translator, tmp_path: Path) -> None:
    result = heads(translator, sentences=20)
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()
    assert (result.sentences, result.left_out, len(result.heads)) == (20, 0, 12)
    assert result.frequencies == "the first 60 lines of the training text"
    text = result.text()
    assert len([line for line in text.splitlines() if line.startswith(("encoder ", "decoder ", "cross "))]) == 12
    assert "encoder" in result.save(tmp_path / "heads.svg").read_text()


def test_roles_are_shown_with_their_shares_and_baselines() -> None:
    result = result_of(
        Measure("positional", "-1", 0.957, None, 100),
        Measure("syntactic", "obj to head", 0.6, 0.4, 100),
        Measure("alignment", "", 0.9, 0.5, 100),
        Measure("positional", "+1", 0.77, None, 100),
        alignment_error=0.123,
    )
    words = " ".join(result.text().split())
    assert "position -1 96%, obj to head 60% (40%), alignment 90% (50%), AER 12.3%, mostly position +1 77%" in words
    assert "2 left out" in words


def test_a_column_without_values_is_omitted_and_a_share_near_half_has_a_decimal() -> None:
    tendency = Measure("positional", "itself", 0.504, None, 100)
    with_it, without = (result_of(tendency, relevance=known).text() for known in (0.3, None))
    assert "relevance  role" in with_it and "not defined for this family" not in with_it
    assert "ablation  role" in without and "share of the layer" not in without
    assert "relevance: not defined for this family" in without
    assert "mostly position itself 50.4%" in " ".join(without.split())


def test_only_colors_that_occur_are_explained() -> None:
    lost, gained, nothing = (Cell("cross", 0, 0, importance, []) for importance in (0.1, -0.1, -1e-6))
    assert "orange" in explain_colors([lost, gained]) and "orange" not in explain_colors([lost, nothing])


def test_token_frequencies_are_named_only_if_a_head_attends_to_rare_tokens() -> None:
    rare = Measure("rare", "", 0.9, 0.5, 100)
    assert "rare: by token frequency in the first 60 lines." in result_of(rare).text() and "rare:" not in result_of().text()


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
    of_trees, of_lines = heads(translator, conllu=trees), heads(translator, data=lines)
    syntactic = [one for one in of_trees.heads[0].measures if one.role == "syntactic"]
    assert [(one.what, one.cases) for one in syntactic] == [("nsubj to head", 12), ("nsubj to dependent", 12)]
    cross = [head for head in of_lines.heads if head.kind == "cross"]
    assert cross and all(head.alignment_error is not None for head in cross)
    with pytest.raises(ConfigError, match="expected one of them"):
        heads(translator, data=lines, conllu=trees)


def test_sentences_that_do_not_fit_are_left_out_and_none_is_an_error(translator: Translator, tmp_path: Path) -> None:
    lines = tmp_path / "lines.tsv"
    lines.write_text("w1 w2\tw2 w1\n" + "w1 " * 600 + "\tw1\n")
    result = heads(translator, data=lines)
    assert (result.sentences, result.left_out) == (1, 1)
    lines.write_text("w1 " * 600 + "\tw1\n")
    with pytest.raises(DataError, match="none of the 1 sentences can be analyzed"):
        heads(translator, data=lines)


def test_without_training_text_frequencies_are_counted_in_the_samples(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("w1 w2 w3\nw4 w5\n")
    (corpus,) = translator.run.data.train
    gone = translator.run.data.model_copy(update={"train": (corpus.model_copy(update={"tsv": str(tmp_path / "gone.tsv")}),)})
    monkeypatch.setattr(translator, "run", translator.run.model_copy(update={"data": gone}))  # type: ignore[attr-defined]
    assert heads(translator, data=lines).frequencies == "these sentences, because the training text is missing"


def test_patches_of_an_image_are_not_looked_up_in_token_frequencies(tiny_runs: dict[str, Path]) -> None:
    result = heads(heedful.load(tiny_runs["captioning"]), sentences=3)
    roles = {side: {one.role for head in result.heads if head.kind == side for one in head.measures} for side in KINDS}
    assert roles == {"encoder": {"positional"}, "decoder": {"positional", "rare"}}


def test_the_loss_of_a_classifier_is_that_of_its_labels(tiny_runs: dict[str, Path]) -> None:
    classifier = heedful.Classifier.load(tiny_runs["classification"])
    result = heads(classifier)
    assert result.loss == pytest.approx(classifier.evaluate("valid")["loss"], abs=1e-5)
    assert result.unit == "example" and "nats per example" in result.text()
    assert sum(head.relevance or 0 for head in result.heads) == pytest.approx(1, abs=1e-4)  # of one layer


def test_trees_of_a_classifier_have_the_predicted_label(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    trees = tmp_path / "trees.conllu"
    trees.write_text("1\tthe\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tcat\t_\t_\t_\t_\t0\troot\t_\t_\n\n" * 3)
    for task in ("language", "classification"):
        result = heads(heedful.load(tiny_runs[task]), conllu=trees)
        measures = {one.what: one.cases for one in result.heads[0].measures if one.role == "syntactic"}
        assert result.sentences == 3 and measures == {"nsubj to head": 0, "nsubj to dependent": 3}  # a causal model


def test_reported_progress_sums_to_one(translator: Translator) -> None:
    shares: list[float] = []
    heads(translator, sentences=10, progress=shares.append)
    assert sum(shares) == pytest.approx(1.0) and len(shares) > 12


def test_the_best_head_of_a_relation_is_reported_with_its_baseline() -> None:
    """Per kind of attention; too few cases do not count."""
    numbers = [(0.6, 0.4, 99), (0.85, 0.4, 99), (1.0, 0.4, 9)]
    adjective, (one, *_) = Measure("syntactic", "amod to head", 0.9, 0.7, 50), result_of().heads
    heads = [
        one._replace(head=at, measures=[adjective, Measure("syntactic", "nsubj to dependent", *numbers[at])]) for at in range(3)
    ]
    result = replace(result_of(), heads=[*heads, heads[0]._replace(kind="decoder", layer=1)])
    assert [(one.kind, one.pair, one.layer, one.head, one.accuracy, one.baseline) for one in result.relations] == [
        ("encoder", "adjective → noun", 0, 0, 0.9, 0.7),
        ("encoder", "verb → subject", 0, 1, 0.85, 0.4),
        ("decoder", "adjective → noun", 1, 0, 0.9, 0.7),
        ("decoder", "verb → subject", 1, 0, 0.6, 0.4),
    ]
    assert "verb → subject (nsubj) encoder.0.1 85% 40% 99" in " ".join(result.text().split())
    assert result.to_dict()["relations"][1]["pair"] == "verb → subject" and "encoder.0.1" in result.html()
    assert result_of().relations == [] and "Agreement" not in result_of().text()
