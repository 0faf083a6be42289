"""heed inspect --html: every section shows its pictures and tables, with the numbers of --json."""

from __future__ import annotations

import contextlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed, write_recipe

import heedful
from heedful.inspection.drawing.figure import color
from heedful.inspection.drawing.head_figures import format_importance
from heedful.inspection.measures.cost_report import PHASES, Size
from heedful.inspection.measures.positions import by_distance, cosines, scores
from heedful.inspection.measures.positions import schemes as schemes_of

SENTENCE = "w1 w2 w3"


class Page(HTMLParser):
    """Sections by their title: the rows of each table, the tips and labels of each picture, and the texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, dict[str, list[Any]]] = {}
        self.open: list[str] = []
        self.here: dict[str, list[Any]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        given = dict(attrs)
        if tag == "section":
            self.here = {"title": [""], "tables": [], "svg": [], "tips": [], "labels": [], "words": [], "bars": [], "cells": []}
        if tag == "table":
            self.here["tables"].append([])
        elif tag == "tr":
            self.here["tables"][-1].append([])
        elif tag in ("th", "td"):
            self.here["tables"][-1][-1].append("")
        elif tag == "svg":
            self.here["svg"].append(given["aria-label"])
        elif tag == "i":
            self.here["bars"].append(float((given["style"] or "").removeprefix("width:").removesuffix("%")) / 100)
        elif tag == "rect" and self.here:
            self.here["cells"].append(given.get("fill"))
        elif tag == "p":
            self.here.setdefault("words", []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass
        if tag == "section" and self.here:
            self.sections[self.here["title"][0]] = self.here
            self.here = {}

    def handle_data(self, text: str) -> None:
        inside = self.open[-1] if self.open else ""
        if not self.here or inside in ("script", "style"):
            return
        if inside == "h2":
            self.here["title"] = [text]
        elif "td" in self.open or "th" in self.open:
            self.here["tables"][-1][-1][-1] += text
        elif inside == "title":
            self.here["tips"].append(text)
        elif inside == "text":
            self.here["labels"].append(text)
        elif inside == "p":
            self.here["words"][-1] += text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, dict[str, list[Any]]]]:
    """The JSON results, and the sections of the page."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    parts = ("--heads", "--positions", "--cost", "--lens", "--saliency", "--patch-from", "w4 w2 w3", "--alternatives", "0")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        options = ("--target", "w3 w4", *parts, "--sentences", "8", "--rows", "2", "--tokens", "4")
        assert heed("inspect", run, SENTENCE, *options, "--html", path, "--json") == 0
    return json.loads(out.getvalue()), Page(path.read_text()).sections


def test_every_section_has_tables_and_pictures_instead_of_terminal_text(report: Any, run: Path, tmp_path: Path) -> None:
    _, sections = report
    named = {"Roles of the heads", "Positional encodings", "Cost", "Logit lens", "Interventions"}
    assert named <= sections.keys()
    assert all(sections[name]["tables"] for name in named)
    assert all(sections[name]["svg"] for name in named - {"Cost"})
    assert heed("inspect", run, "--cost", "--html", tmp_path / "cost.html") == 0
    assert "<pre" not in (tmp_path / "cost.html").read_text().split("<main>")[1].split("</main>")[0]


def test_the_grid_and_the_table_of_heads_have_each_head_with_its_figures(report: Any) -> None:
    found, sections = report
    heads, section = found["heads"]["heads"], sections["Roles of the heads"]
    (table,) = section["tables"]
    assert len(table) == 1 + len(heads) == 13
    for head, row in zip(heads, table[1:], strict=True):
        assert row[:3] == [head["kind"], str(head["layer"]), str(head["head"])]
        assert float(row[3]) == pytest.approx(head["confidence"], abs=6e-3)
        assert float(row[4]) == pytest.approx(head["share"], abs=6e-3)
        assert float(row[5]) == pytest.approx(head["ablation"], abs=6e-5)
        assert format_importance(head["ablation"]) in section["labels"]
    assert section["tips"] == [
        f"{head['kind']} · layer {head['layer']} · head {head['head']}: {head['ablation']:.4f}" for head in heads
    ]
    most = max(abs(head["ablation"]) for head in heads)
    shades = ["#{:02x}{:02x}{:02x}".format(*color(head["ablation"] / most, "importance")) for head in heads]
    assert [fill for fill in section["cells"] if fill in shades] == shades
    assert section["svg"] == ["encoder", "decoder", "cross"]


def test_the_cost_of_each_part_is_that_of_the_cost_record(report: Any, run: Path) -> None:
    found, sections = report
    model: Any = heedful.load(run).model
    section = sections["Cost"]
    bars = iter(section["bars"])
    for (name, count), table in zip(PHASES.items(), section["tables"], strict=False):
        record = count(model, Size(2, 4, 4))
        working = {part: cost for part, cost in record.parts.items() if cost.traffic}
        *rows, total = table[1:]
        assert [row[0] for row in rows] == list(working) and total[0] == "all"
        machine = found["cost"]["machine"]
        seconds = [max(one.work / machine["operations"], one.traffic / machine["bytes"]) for one in working.values()]
        shares = [one / sum(seconds) for one in seconds]
        assert [float(row[1].removesuffix("%")) / 100 for row in rows] == pytest.approx(shares, abs=6e-4)
        assert [next(bars) for _ in rows] == pytest.approx(shares, abs=6e-4)
        bound = [share for share, cost in zip(shares, working.values(), strict=True) if cost.intensity < machine["ridge"]]
        text = f"{len(bound)} of {len(rows)} parts are memory-bound, {sum(bound):.0%} of the time."
        assert text in section["words"], name
    ridge = found["cost"]["machine"]["ridge"]
    assert any(f"fewer than {ridge:.1f} FLOP per byte is memory-bound" in text for text in section["words"])
    sizes = found["cost"]["memory"]
    assert list(bars) == pytest.approx([size / max(sizes.values()) for size in sizes.values()], abs=6e-5)


def test_the_positional_encodings_shown_are_those_of_the_model(report: Any, run: Path) -> None:
    found, sections = report
    section, schemes = sections["Positional encodings"], found["positions"]["schemes"]
    model: Any = heedful.load(run).model
    assert len(schemes) == 2 and section["svg"][:2] == ["added to the embedding", "similarity by distance"]
    similar = section["tables"][0]
    assert similar[0][1:] == [str(at) for at in range(8)] and [row[0] for row in similar[1:]] == ["dot", "cosine"]
    position = next(iter(schemes_of(model).values()))
    similarity = scores(position, 64)
    for row, expected in zip(similar[1:], (by_distance(similarity), by_distance(cosines(similarity))), strict=True):
        assert [float(cell) for cell in row[1:]] == pytest.approx(expected[:8].tolist(), rel=1e-3, abs=1e-4)
    degrees = [turn["degrees"] for turns in next(iter(schemes.values()))["turns"].values() for turn in turns]
    assert [text for text in section["labels"] if text.endswith("°")] == [f"{one:.1f}°" for one in degrees]


def test_a_page_requires_no_matplotlib(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert heed("inspect", run, "--heads", "--positions", "--sentences", "4", "--html", tmp_path / "page.html") == 0
    assert heed("inspect", run, "--heads", "--sentences", "4", "--picture", tmp_path / "heads.svg") == 0
    drawn = re.findall(r"· head \d+: -?\d\.\d{4}", (tmp_path / "heads.svg").read_text())
    assert drawn == re.findall(r"· head \d+: -?\d\.\d{4}", (tmp_path / "page.html").read_text()) and len(drawn) == 12
    assert torch.tensor([float(one.rpartition(" ")[2]) for one in drawn]).abs().max() > 0
