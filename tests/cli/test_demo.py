"""The demo tells the error rate that `heed align` tells, and draws only sentences whose links are all right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from workshop import heed

from heedful.build import Translator, load_translator
from heedful.cli import aligning, demo
from heedful.data.gold import Gold, Words, builtin_gold
from heedful.evaluation.word_alignment import Link
from heedful.studies import aligning as study

FEW = ("training.steps=4", "task.validation_sentences=4", "data.counts={train=300, valid=20, test=60}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "run"
    assert heed("train", "demo", *FEW, "model.dim=16", "model.feed_forward=32", "--run", folder) == 0
    return folder


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return load_translator(run)


def test_the_error_rate_is_that_of_heed_align(run: Path, translator: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    rate, _ = demo.aligned(translator)
    capsys.readouterr()
    assert heed("align", run, "--bootstrap", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["aer"]["value"] == rate


def test_a_sentence_with_a_wrong_word_link_or_darkest_cell_is_not_drawn(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold = builtin_gold("test", 60)
    links: dict[Words, frozenset[Link]] = {pair: line.sure for pair, line in zip(*gold, strict=True)}
    fit = [
        pair
        for pair in gold.pairs
        if len(pair.source.split()) in demo.DRAWN_WORDS and len({t for _, t in links[pair]}) == len(pair.target.split())
    ]
    first, second, third, *others = dict.fromkeys(fit)
    answers = {pair.source: pair.target for pair in gold.pairs} | {first.source: "other words"}

    def linked(models: object, pairs: list[Words], aligner: object, valid: Gold) -> tuple[list[set[Link]], study.Aligner]:
        return [set(links[pair]) if pair != second else {(0, 0)} for pair in pairs], study.Aligner((study.Head(0, 0),))

    def weights(models: object, pairs: list[Words], heads: object, moments: object) -> list[list[Tensor]]:
        found = []
        for pair in pairs:
            one = torch.zeros(1, len(pair.target.split()), len(pair.source.split()))
            for source, target in links[pair]:
                one[0, target, source] = 1.0
            found.append(one.flip(-1).roll(1, -1) if pair == third else one)
        return [found]

    monkeypatch.setattr(aligning, "links_by", linked)
    monkeypatch.setattr(study, "maps_of", weights)
    monkeypatch.setattr(translator, "translate", lambda lines: [answers[line] for line in lines])
    _, pictures = demo.aligned(translator)
    assert [picture.partition("  ->  ")[0] for picture in pictures] == [pair.source for pair in others[: demo.DRAWN]]
