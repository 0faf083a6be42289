"""heed inspect, analyses of a text: results equal the recorded trace, and an option without effect is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from safetensors import safe_open
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful import inspection as analyses
from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.example_text import ExampleText
from heedful.inspection.analyses.saliency import SaliencyResult, color_limit
from heedful.inspection.drawing.figure import color
from heedful.inspection.measures.saliency import NOTE, Saliency
from heedful.runs.load import load
from heedful.tasks.translation.predictor import Translator

SENTENCE = "w1 w2 w3"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def inspection(run: Path) -> AttentionResult:
    return analyses.attention(load(run), SENTENCE, "w3 w4")


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert heed("inspect", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_model_is_summarized(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = inspect(capsys, "summary", run)
    assert model["parameters"] == sum(one.numel() for one in load(run).model.parameters()) == sum(model["parts"].values())
    assert model["attention"] == {"encoder": [2, 2], "decoder": [2, 2], "cross": [2, 2]}
    assert heed("inspect", "summary", run) == 0
    assert "analyses, as arguments of heed inspect" in capsys.readouterr().out


def test_a_sentence_is_translated_aligned_and_its_heads_are_summarized(
    run: Path, inspection: AttentionResult, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspect(capsys, "attention", run, SENTENCE)
    assert found["target"] == Translator.load(run).translate([SENTENCE])[0]
    found = inspect(capsys, "attention", run, SENTENCE, "--target", "w3 w4")
    words = torch.cat(list(inspection.views.words.values())).mean(0)
    assert_close(torch.tensor(found["alignment"]["weights"]), words)
    assert found["alignment"]["links"] == sorted([int(words[at].argmax()), at] for at in range(2))
    assert len(found["heads"]) == 12
    for row in found["heads"]:
        (one,) = [one for one in inspection.trace.maps if (one.kind.name, one.layer) == (row["kind"], row["layer"])]
        weights = one.weights[row["head"]].double()
        assert row["entropy"] == pytest.approx(float(-(weights * weights.clamp(min=1e-300).log2()).sum(-1).mean()), abs=1e-5)
        assert row["largest"] == pytest.approx(float(weights.amax(-1).mean()))
        assert row["most"] == inspection.trace.keys(one)[int(weights.mean(0).argmax())]


@pytest.mark.parametrize("by", ["weights", "norms"])
def test_all_weights_of_one_head_are_shown(
    run: Path, inspection: AttentionResult, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "--kind", "cross", "--layer", "1", "--head", "1", "--by", by
    found = inspect(capsys, "attention", run, SENTENCE, "--target", "w3 w4", *where)["map"]
    at, one = next((at, one) for at, one in enumerate(inspection.trace.maps) if (one.kind.name, one.layer) == ("cross", 1))
    lengths = inspection.views.norms[at][1] if by == "norms" else 1.0
    assert_close(torch.tensor(found["values"]), one.weights[1] * lengths)
    assert found["queries"] == ["w3", "w4", "</s>"] and found["keys"] == ["w1", "w2", "w3", "</s>"]
    assert heed("inspect", "attention", run, SENTENCE, "--target", "w3 w4", *where) == 0
    shown = capsys.readouterr().out.split()
    assert all(f"{value:.4f}" in shown for row in found["values"] for value in row)


def test_the_largest_weight_with_special_tokens_is_not_called_confidence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("inspect", "attention", run, SENTENCE) == 0
    text = capsys.readouterr().out
    assert "confidence" not in text and "largest weight, start and end tokens included" in text


def test_rollout_equals_the_rollout_of_the_trace(
    run: Path, inspection: AttentionResult, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "--kind", "encoder", "--layer", "1", "--by", "rollout"
    found = inspect(capsys, "attention", run, SENTENCE, "--target", "w3 w4", *where)["map"]
    (rolled,) = [one for one in inspection.views.rollout if (one.kind.name, one.layer) == ("encoder", 1)]
    assert_close(torch.tensor(found["values"]), rolled.weights[0])


@pytest.mark.parametrize("by", ["weights", "norms", "rollout"])
def test_the_table_of_heads_follows_by(
    run: Path, inspection: AttentionResult, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "attention", run, SENTENCE, "--target", "w3 w4", "--kind", "encoder", "--by", by
    rows = inspect(capsys, *where)["heads"]
    maps = [(at, one) for at, one in enumerate(inspection.trace.maps) if one.kind.name == "encoder"]
    rolled = {one.name: one.weights for one in inspection.views.rollout}
    expected = []
    for at, one in maps:
        values = {"weights": one.weights, "norms": one.weights * inspection.views.norms[at], "rollout": rolled[one.name]}[by]
        expected += [(one, head, shares / shares.sum(-1, keepdim=True)) for head, shares in enumerate(values.double())]
    assert len(rows) == len(expected) == (2 if by == "rollout" else 4)
    for row, (one, head, shares) in zip(rows, expected, strict=True):
        assert (row["layer"], row["head"]) == (one.layer, None if by == "rollout" else head)
        assert row["entropy"] == pytest.approx(float(-(shares * shares.log2()).sum(-1).mean()), abs=1e-5)
        assert row["largest"] == pytest.approx(float(shares.amax(-1).mean()), abs=1e-5)
        assert row["most"] == inspection.trace.keys(one)[int(shares.mean(0).argmax())]
    assert heed("inspect", *where) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("encoder")]
    assert [line[2] for line in lines] == (["all"] * 2 if by == "rollout" else ["0", "1"] * 2)


def test_all_weights_of_the_trace_are_saved(run: Path, inspection: AttentionResult, tmp_path: Path) -> None:
    assert heed("inspect", "attention", run, SENTENCE, "--target", "w3 w4", "--save", tmp_path / "trace.safetensors") == 0
    with safe_open(tmp_path / "trace.safetensors", "pt") as file:
        header = {name: json.loads(text) for name, text in file.metadata().items()}
        for one, lengths in zip(inspection.trace.maps, inspection.views.norms, strict=True):
            assert torch.equal(file.get_tensor(one.name), one.weights)
            assert torch.equal(file.get_tensor(f"{one.name.removesuffix('.weights')}.lengths"), lengths)
            assert header["maps"][one.name]["keys"] == inspection.trace.keys(one)
    assert header["source"]["text"] == SENTENCE and header["target"]["text"] == "w3 w4"


@pytest.mark.parametrize("name", ["all.svg", "all.png"])
@pytest.mark.parametrize(
    "where", [(), ("--kind", "cross"), ("--kind", "decoder", "--layer", "0", "--head", "1", "--lines"), ("--by", "norms")]
)
def test_pictures_are_drawn(run: Path, name: str, where: tuple[str, ...], tmp_path: Path) -> None:
    place = (*where, "--kind", "encoder") if where == ("--by", "norms") else where
    assert heed("inspect", "attention", run, SENTENCE, *place, "--picture", tmp_path / name) == 0
    begins = b"<svg" if name.endswith("svg") else b"\x89PNG"
    assert (tmp_path / name).read_bytes().startswith(begins)


def words_of(picture: Path) -> list[str]:
    """All texts of an SVG."""
    return [one.text or "" for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    "where", ["attention", "saliency", "lens", "attention --kind cross", "attention --kind encoder --layer 0 --head 1"]
)
def test_the_caption_of_a_picture_names_sentence_rows_and_columns(run: Path, where: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    analysis, *options = where.split()
    assert heed("inspect", analysis, run, SENTENCE, "--target", "w3 w4", *options, "--picture", picture) == 0
    written = words_of(picture)
    assert f"source: {SENTENCE}" in written and "translation: w3 w4" in written
    caption = " ".join(written[written.index("translation: w3 w4") + 1 :])
    assert caption.startswith("rows") and "columns" in caption
    if where == "attention --kind cross":
        assert "w3 w4 </s>" in caption and f"{SENTENCE} </s>" in caption


def test_the_picture_of_saliency_shows_the_computed_values(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    found = inspect(capsys, "saliency", run, SENTENCE, "--target", "w3 w4", "--picture", picture)["saliency"]
    written = words_of(picture)
    assert "saliency: gradient x input, in nats" in written and "attention, mean of all layers and heads" in written
    assert f"bound {found['agreement']['bound']:+.2f}" in " ".join(written)
    assert NOTE in " ".join(written)
    tips = [one.text for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
    rows, columns = ["w3", "w4", "</s>"], [*SENTENCE.split(), "</s>"]
    assert tips == [
        f"{row} → {column}: {values[i][j]:.4f}"
        for values in (found["source"], found["source_bound"], found["attention"])
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


def test_an_outlier_is_clipped_and_named_in_the_caption() -> None:
    values = torch.tensor([[0.1, -0.2, 0.1] * 10, [0.1, 9.0, -0.2] * 1 + [0.1] * 27])
    assert color_limit(values) == pytest.approx(0.2)
    captions = saliency_result(values).describe()
    assert "gradient x input: colors are clipped at 0.2; the largest value is 9" in captions
    assert color_limit(torch.tensor([[1.0, -1.5]])) == 1.5 and color_limit(torch.zeros(1, 2)) > 0


def test_the_picture_of_patching_shows_the_recovered_nats_on_one_scale(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    asked = "patch", run, SENTENCE, "--target", "w3 w4", "--from", "w4 w5 w6", "--picture", picture
    places = inspect(capsys, *asked)["patched"]["places"]
    tips = [str(one.text) for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
    nats = [sum(tokens) for place in places for tokens in place["change"]]
    assert [tip.rpartition(": ")[2] for tip in tips] == [f"{value:.4f}" for value in nats]
    assert words_of(picture).count(f"{max(map(abs, nats)):.3g}") == 2


def test_unknown_words_are_reported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for name in ("attention", "lens", "alternatives", "saliency", "report"):
        assert heed("inspect", name, run, "w1 zork w3", "--target", "w3 blarg") == 0
        assert "not in the model's vocabulary: zork, blarg (--target);" in capsys.readouterr().err
    assert heed("inspect", "patch", run, "w1 zork w3", "--from", "w1 gnu w3") == 0
    assert "not in the model's vocabulary: zork, gnu (--from);" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("largest", "unit", "shown"),
    [
        (2.5, "nats", "2.50"),
        (-0.0457, "thousandths of a nat", "-45.70"),
        (3e-5, "millionths of a nat", "30.00"),
        (0.0, "nats", "0.00"),
    ],
)
def test_small_saliency_is_shown_in_a_smaller_unit(largest: float, unit: str, shown: str) -> None:
    text = saliency_result(torch.tensor([[largest, largest / 10]])).text()
    assert f"\ngradient x input of each source token, in {unit}\n" in text and f" {shown} " in text
    assert f"its bound, in {unit}\n" in text


def test_the_picture_of_the_lens_shows_each_layers_prediction_and_probability(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    lens = inspect(capsys, "lens", run, SENTENCE, "--target", "w3 w4", "--picture", picture)
    written = words_of(picture)
    assert "logit lens: prediction of each layer" in written and {"decoder.0", "decoder.1"} <= set(written)
    assert all(layer["predicted"][at] in written for layer in lens["layers"] for at in range(3))
    assert written.count("•") == sum(rank == 1 for layer in lens["layers"] for rank in layer["final_rank"]) >= 3
    tips = [one.text for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
    expected = [
        f"{layer['name'].removesuffix('.out')} → {token}: {layer['probability'][at]:.4f}"
        for at, token in enumerate(lens["tokens"])
        for layer in lens["layers"]
    ]
    assert tips == expected


def test_the_picture_of_a_rollout_has_no_heads(run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    assert heed("inspect", "attention", run, SENTENCE, "--kind", "encoder", "--by", "rollout", "--picture", picture) == 0
    written = words_of(picture)
    assert {"layer 0", "layer 1", "all heads"} <= set(written) and "head 0" not in written


def test_the_color_scale_of_rollouts_ends_at_their_largest_value(
    run: Path, inspection: AttentionResult, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.svg"
    rolled = {one.layer: one.weights for one in inspection.views.rollout if one.kind.name == "encoder"}
    asked = "attention", run, SENTENCE, "--target", "w3 w4", "--kind", "encoder", "--by", "rollout", "--picture", picture
    assert heed("inspect", *asked) == 0 and len(rolled) == 2
    assert all(f"to {float(values.max()):.2g}" in words_of(picture) for values in rolled.values())
    assert heed("inspect", *asked, "--layer", "1") == 0
    assert f"{float(rolled[1].max()):.3g}" in words_of(picture)
    dark = "#{:02x}{:02x}{:02x}".format(*color(1.0, "blue"))
    cells = [one for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}rect") if one.get("fill") == dark]
    assert len(cells) == int((rolled[1] == rolled[1].max()).sum())


def saliency_result(values: torch.Tensor) -> SaliencyResult:
    """Of a translation without tokens; values (1 or more rows, source time)."""
    columns, rows = [f"w{at}" for at in range(values.shape[1])], ["</s>"] * len(values)
    example = ExampleText("w0", ["w0"], "", [], rows, rows, columns)
    return SaliencyResult(example, Saliency(values, values[:, :0], values.abs(), values[:, :0]))


def test_the_report_contains_the_other_analyses(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    found = inspect(capsys, "report", run, SENTENCE, "--include", "attention", "--include", "lens", "--html", page)
    facts = json.loads(page.read_text().split('id="recorded">')[1].split("</script>")[0])
    assert "<h2>Logit lens</h2>" in page.read_text() and list(found) == ["attention", "lens"]
    assert {one["analysis"]: one["data"] for one in facts["results"]} == found and facts["attention"]["kinds"]
    assert facts["subject"][0] == SENTENCE and facts["facts"] == ["transformer", run.name]


def test_a_report_of_the_model_requires_no_text(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(capsys, "report", run, "--include", "summary", "--html", tmp_path / "alone.html")
    facts = json.loads((tmp_path / "alone.html").read_text().split('id="recorded">')[1].split("</script>")[0])
    assert [one["data"] for one in facts["results"]] == [found["summary"]] and facts["attention"] is None
    assert facts["subject"] == [run.name] and facts["facts"] == ["transformer", run.name]


CROSS = ("attention", SENTENCE, "--kind", "cross")
REFUSED = [
    (("summary", "--html", "x.txt"), "expected a file name in .html"),
    (("lens",), "Missing argument 'TEXT'"),
    (("report", "--target", "x"), "a target and search options have no effect without a text"),
    (("attention", " "), "given an empty text, expected at least one word"),
    (("attention", SENTENCE, "--target", ""), "given an empty target"),
    (("patch", SENTENCE, "--from", " "), "given an empty text"),
    (("patch", SENTENCE), "Missing option '--from'"),
    (("ablate", SENTENCE), "Missing option '--head'"),
    (("attention", SENTENCE, "--layer", "0"), "layer has no effect without a kind"),
    ((*CROSS, "--head", "1"), "head has no effect without a layer"),
    (("attention", SENTENCE, "--lines"), "--lines has no effect without --picture"),
    (("attention", SENTENCE, "--by", "norms", "--picture", "x.svg"), "by has no effect without a kind"),
    ((*CROSS, "--layer", "0", "--lines", "--picture", "x.svg"), "lines are drawn for one head, but no head is given"),
    (
        (*CROSS, "--layer", "0", "--head", "0", "--by", "rollout"),
        "rollout merges all heads of a layer, so a head has no effect",
    ),
    ((*CROSS, "--layer", "0", "--by", "rollout"), "cross has no rollout, expected one of: encoder, decoder"),
    ((*CROSS, "--by", "rollout"), "cross has no rollout, expected one of: encoder, decoder"),
    (("ablate", SENTENCE, "--head", "cross.0.0", "--picture", "x.svg"), "No such option: --picture"),
    (("alternatives", SENTENCE, "--picture", "x.svg"), "No such option: --picture"),
    (("lens", SENTENCE, "--picture", "x.txt"), "expected a file name in .svg or .png or .pdf"),
    (("lens", SENTENCE, "--html", "x.txt"), "expected a file name in .html"),
    (("attention", SENTENCE, "--save", "x.npz"), "expected a file name in .safetensors"),
    (("attention", SENTENCE, "--kind", "across"), "kind: given 'across', expected one of: encoder, decoder, cross"),
    ((*CROSS, "--layer", "7"), "layer: given 7, expected one of: 0, 1 (the layers of kind 'cross' that have heads)"),
    ((*CROSS, "--layer", "0", "--head", "7"), "head: given 7, expected 0 to 1"),
    (("alternatives", SENTENCE, "--target", "w1", "-s", "beam=2"), "search options have no effect with a given target"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_an_option_without_effect_or_an_unknown_value_is_an_error(
    run: Path, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert heed("inspect", arguments[0], run, *arguments[1:]) == 2
    output = capsys.readouterr()
    assert output.out == "" and sentence in output.err and "Traceback" not in output.err


@pytest.mark.parametrize(("option", "name"), [("--picture", "x.svg"), ("--html", "x.html"), ("--save", "x.safetensors")])
def test_a_file_in_a_missing_folder_is_refused_before_the_work(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "folder" / name
    assert heed("inspect", "attention", tmp_path / "no-run", SENTENCE, option, file) == 4
    assert f"error: {file} cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_notebook_gets_the_same_page(inspection: AttentionResult, run: Path, tmp_path: Path) -> None:
    assert inspection._repr_html_().startswith("<iframe")
    assert heed("inspect", "attention", run, SENTENCE, "--target", "w3 w4", "--html", tmp_path / "cli.html") == 0
    assert (tmp_path / "cli.html").read_text() == inspection.save(tmp_path / "notebook.html").read_text()


@pytest.mark.parametrize(
    "options", [("lens",), ("saliency",), ("alternatives", "--position", "0"), ("patch", "--from", "w4 w5")]
)
def test_analyses_that_need_no_attention_work_for_a_model_without_any(
    options: tuple[str, ...], fixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("inspect", options[0], fixed, SENTENCE, *options[1:]) == 0
    capsys.readouterr()
    assert heed("inspect", "attention", fixed, SENTENCE) == 2
    assert options[0] in capsys.readouterr().err  # in the hint


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed")
    family = 'model={family="sutskever", dim=8, layers=1}'
    assert heed("train", write_recipe(folder), family, "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


def test_characters_without_a_glyph_are_escaped_in_a_png_with_room_for_the_escape(
    inspection: AttentionResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.inspection.result.replace_missing_glyphs", lambda text: text.replace("w3", "w" * 40))
    drawn: list[float] = []
    monkeypatch.setattr("heedful.inspection.result.save_figure", lambda figure, path: drawn.append(figure.width))
    for name in ("a.svg", "a.png"):
        inspection.save(tmp_path / name)
    assert len(drawn) == 2 and drawn[1] > drawn[0]
