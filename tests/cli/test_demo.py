"""The demo reports the error rate of `heed inspect alignment`, and shows only sentences whose links are all correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from workshop import heed

from heedful.cli import demo
from heedful.data.gold import SentencePair, builtin_gold
from heedful.errors import Interrupted
from heedful.evaluation.word_alignment import Link
from heedful.inspection.analyses import alignment as analysis
from heedful.inspection.measures.alignment_heads import Aligner, AlignmentHead
from heedful.runs import train as training
from heedful.tasks.translation.predictor import Translator

FEW = ("training.steps=4", "task.validation_sentences=4", "data.counts={train=300, valid=20, test=60}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "run"
    assert heed("train", "demo", *FEW, "model.dim=16", "model.feed_forward=32", "--run", folder) == 0
    return folder


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run)


def test_the_error_rate_is_that_of_the_analysis(run: Path, translator: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    rate, _ = demo.evaluate_alignment(translator)
    capsys.readouterr()
    assert heed("inspect", "alignment", run, "--bootstrap", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["aer"]["value"] == rate


def test_a_sentence_with_a_wrong_translation_link_or_largest_weight_is_not_shown(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold = builtin_gold("test", 60)
    links: dict[SentencePair, frozenset[Link]] = {pair: line.sure for pair, line in zip(*gold, strict=True)}
    fit = [
        pair
        for pair in gold.pairs
        if len(pair.source.split()) in demo.PICTURE_WORDS and len({t for _, t in links[pair]}) == len(pair.target.split())
    ]
    first, second, third, *others = dict.fromkeys(fit)
    answers = {pair.source: pair.target for pair in gold.pairs} | {first.source: "other words"}

    def choose(*_: object) -> tuple[Aligner, str, None]:
        return Aligner((AlignmentHead(0, 0),)), "selected", None

    def links_with_an_error(models: object, pairs: list[SentencePair], aligner: object) -> list[set[Link]]:
        return [set(links[pair]) if pair != second else {(0, 0)} for pair in pairs]

    def weights_with_an_error(models: object, pairs: list[SentencePair], heads: object, moments: object) -> list[list[Tensor]]:
        maps = []
        for pair in pairs:
            one = torch.zeros(1, len(pair.target.split()), len(pair.source.split()))
            for source, target in links[pair]:
                one[0, target, source] = 1.0
            maps.append(one.flip(-1).roll(1, -1) if pair == third else one)
        return [maps]

    monkeypatch.setattr(analysis, "choose", choose)
    monkeypatch.setattr(analysis, "align", links_with_an_error)
    monkeypatch.setattr(analysis, "maps_of", weights_with_an_error)
    monkeypatch.setattr(translator, "translate", lambda lines: [answers[line] for line in lines])
    _, pictures = demo.evaluate_alignment(translator)
    assert [picture.partition("  ->  ")[0] for picture in pictures] == [pair.source for pair in others[: demo.PICTURES]]


def test_the_demo_first_reports_its_duration_and_its_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("here")

    monkeypatch.setattr(training, "train_config", stop)
    assert heed("demo", "--run", tmp_path / "run") == 75
    first = capsys.readouterr().err.split("stopped:")[0]
    assert "about two minutes" in first and f"Run folder: {tmp_path / 'run'}." in first


def test_the_demo_ends_with_the_next_commands(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "evaluate_alignment", lambda translator: (0.1, []))
    assert heed("demo", *FEW, "model.dim=16", "model.feed_forward=32", "--run", run) == 0
    *_, next_line, translate, inspect = capsys.readouterr().err.splitlines()
    assert next_line == "Next:"
    assert f"heed translate {run}" in translate
    assert f"heed inspect report {run} '" in inspect and inspect.endswith("' --html report.html")
