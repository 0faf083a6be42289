"""The page of a result shows its pictures and tables, with the numbers of the result."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Page

import heedful
from heedful.inspection.drawing.figure import color
from heedful.inspection.drawing.head_figures import format_importance
from heedful.inspection.measures.cost_report import PHASES, Size
from heedful.inspection.measures.positions import by_distance, cosines, scores
from heedful.inspection.measures.positions import schemes as schemes_of


@pytest.fixture
def translator(tiny_runs: dict[str, Path]) -> heedful.Translator:
    return heedful.Translator.load(tiny_runs["translation"])


def test_the_grid_and_the_table_of_heads_have_each_head_with_its_figures(translator: heedful.Translator) -> None:
    result = heedful.inspection.heads(translator, sentences=8)
    heads, section = result.heads, Page(result.html()).sections["Roles of the heads"]
    (table,) = section["tables"]
    assert len(table) == 1 + len(heads) == 13
    for head, row in zip(heads, table[1:], strict=True):
        assert row[:3] == [head.kind, str(head.layer), str(head.head)]
        assert float(row[3]) == pytest.approx(head.confidence, abs=6e-3)
        assert float(row[4]) == pytest.approx(head.share, abs=6e-3)
        assert float(row[5]) == pytest.approx(head.ablation, abs=6e-5)
        assert format_importance(head.ablation) in section["labels"]
    assert section["tips"] == [f"{one.kind} · layer {one.layer} · head {one.head}: {one.ablation:.4f}" for one in heads]
    most = max(abs(head.ablation) for head in heads)
    shades = ["#{:02x}{:02x}{:02x}".format(*color(head.ablation / most, "importance")) for head in heads]
    assert [fill for fill in section["cells"] if fill in shades] == shades
    assert section["svg"] == ["encoder", "decoder", "cross"]


def test_the_cost_of_each_part_is_that_of_the_cost_record(translator: heedful.Translator) -> None:
    result = heedful.inspection.cost(translator, rows=2, tokens=4)
    section = Page(result.html()).sections["Cost"]
    assert "<pre" not in result.html().split("<template")[1].split("</template>")[0]
    bars = iter(section["bars"])
    for name, table in zip(result.phases, section["tables"], strict=False):
        record = PHASES[name](translator.model, Size(2, 4, 4))
        working = {part: cost for part, cost in record.parts.items() if cost.traffic}
        *rows, total = table[1:]
        assert [row[0] for row in rows] == list(working) and total[0] == "all"
        machine = result.machine
        seconds = [max(one.work / machine.operations, one.traffic / machine.bytes) for one in working.values()]
        shares = [one / sum(seconds) for one in seconds]
        assert [float(row[1].removesuffix("%")) / 100 for row in rows] == pytest.approx(shares, abs=6e-4)
        assert [next(bars) for _ in rows] == pytest.approx(shares, abs=6e-4)
        bound = [share for share, cost in zip(shares, working.values(), strict=True) if cost.intensity < machine.ridge]
        text = f"{len(bound)} of {len(rows)} parts are memory-bound, {sum(bound):.0%} of the time."
        assert text in section["words"], name
    assert any(f"fewer than {result.machine.ridge:.1f} FLOP per byte is memory-bound" in text for text in section["words"])
    sizes = result.memory
    assert list(bars) == pytest.approx([size / max(sizes) for size in sizes], abs=6e-5)


def test_the_positional_encodings_shown_are_those_of_the_model(translator: heedful.Translator) -> None:
    result = heedful.inspection.positions(translator, sentences=8)
    section = Page(result.html()).sections["Positional encodings"]
    assert len(result.schemes) == 2 and section["svg"][:2] == ["added to the embedding", "similarity by distance"]
    similar = section["tables"][0]
    assert similar[0][1:] == [str(at) for at in range(8)] and [row[0] for row in similar[1:]] == ["dot", "cosine"]
    similarity = scores(next(iter(schemes_of(translator.model).values())), 64)
    for row, expected in zip(similar[1:], (by_distance(similarity), by_distance(cosines(similarity))), strict=True):
        assert [float(cell) for cell in row[1:]] == pytest.approx(expected[:8].tolist(), rel=1e-3, abs=1e-4)
    vectors = next(iter(result.schemes.values())).vectors
    assert vectors is not None
    degrees = [one.degrees for rotations in vectors.rotations.values() for one in rotations]
    assert [text for text in section["labels"] if text.endswith("°")] == [f"{one:.1f}°" for one in degrees]


def test_the_page_and_the_picture_of_an_alignment_show_its_error_rates(translator: heedful.Translator) -> None:
    from heedful.data.gold import Gold, SentencePair
    from heedful.evaluation.word_alignment import Alignment

    links = frozenset({(0, 1), (1, 0)})
    result = heedful.inspection.alignment(translator, Gold([SentencePair("w1 w2", "w2 w1")], [Alignment(links, links)]))
    section = Page(result.html()).sections["Word alignment"]
    layers, heads = section["tables"]
    assert result.scores is not None and len(layers) == 3 and len(heads) == 5
    assert [row[1] for row in heads[1:]] == [f"{one.predict.value:.1%}" for one in result.scores.heads]
    assert section["svg"] == ["pair 1", "alignment error rate of each head"]
    for target, word in enumerate(("w2", "w1")):
        for source, other in enumerate(("w1", "w2")):
            assert f"{word} → {other}: {float(result.weights[0][target, source]):.4f}" in section["tips"]
    assert "alignment error rate of each head" in result.svg()
