"""heed inspect: results equal the recorded trace, and an option without effect is refused."""

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

from heedful.inspection.analyses.attention import Inspection
from heedful.inspection.analyses.interventions import saliency_text
from heedful.inspection.analyses.sentence_figures import color_limit, describe_saliency
from heedful.inspection.drawing.figure import color
from heedful.inspection.measures.saliency import NOTE
from heedful.runs.load import load
from heedful.tasks.translation.predictor import Translator

SENTENCE = "w1 w2 w3"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def inspection(run: Path) -> Inspection:
    translator: Translator = load(run)
    return translator.inspect(SENTENCE, "w3 w4")


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    capsys.readouterr()
    assert heed("inspect", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_without_a_sentence_the_model_is_summarized(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = inspect(capsys, run)["model"]
    assert model["parameters"] == sum(one.numel() for one in load(run).model.parameters()) == sum(model["parts"].values())
    assert model["attention"] == {"encoder": [2, 2], "decoder": [2, 2], "cross": [2, 2]}
    assert heed("inspect", run) == 0
    assert "views, as arguments of heed inspect RUN" in capsys.readouterr().out


def test_a_sentence_is_translated_aligned_and_its_heads_are_summarized(
    run: Path, inspection: Inspection, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspect(capsys, run, SENTENCE)["sentence"]
    assert found["target"] == load(run).translate([SENTENCE])[0]
    found = inspect(capsys, run, SENTENCE, "--target", "w3 w4")["sentence"]
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
    run: Path, inspection: Inspection, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "--kind", "cross", "--layer", "1", "--head", "1", "--by", by
    found = inspect(capsys, run, SENTENCE, "--target", "w3 w4", *where)["sentence"]["map"]
    at, one = next((at, one) for at, one in enumerate(inspection.trace.maps) if (one.kind.name, one.layer) == ("cross", 1))
    lengths = inspection.views.norms[at][1] if by == "norms" else 1.0
    assert_close(torch.tensor(found["values"]), one.weights[1] * lengths)
    assert found["queries"] == ["w3", "w4", "</s>"] and found["keys"] == ["w1", "w2", "w3", "</s>"]
    assert heed("inspect", run, SENTENCE, "--target", "w3 w4", *where) == 0
    shown = capsys.readouterr().out.split()
    assert all(f"{value:.4f}" in shown for row in found["values"] for value in row)


def test_the_largest_weight_with_special_tokens_is_not_called_confidence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("inspect", run, SENTENCE) == 0
    text = capsys.readouterr().out
    assert "confidence" not in text and "largest weight, start and end tokens included" in text


def test_rollout_equals_the_rollout_of_the_trace(run: Path, inspection: Inspection, capsys: pytest.CaptureFixture[str]) -> None:
    where = "--kind", "encoder", "--layer", "1", "--by", "rollout"
    found = inspect(capsys, run, SENTENCE, "--target", "w3 w4", *where)["sentence"]["map"]
    (rolled,) = [one for one in inspection.views.rollout if (one.kind.name, one.layer) == ("encoder", 1)]
    assert_close(torch.tensor(found["values"]), rolled.weights[0])


@pytest.mark.parametrize("by", ["weights", "norms", "rollout"])
def test_the_table_of_heads_follows_by(run: Path, inspection: Inspection, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = run, SENTENCE, "--target", "w3 w4", "--kind", "encoder", "--by", by
    rows = inspect(capsys, *where)["sentence"]["heads"]
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


def test_all_weights_of_the_trace_are_saved(run: Path, inspection: Inspection, tmp_path: Path) -> None:
    assert heed("inspect", run, SENTENCE, "--target", "w3 w4", "--save", tmp_path / "trace.safetensors") == 0
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
    assert heed("inspect", run, SENTENCE, *place, "--picture", tmp_path / name) == 0
    begins = b"<svg" if name.endswith("svg") else b"\x89PNG"
    assert (tmp_path / name).read_bytes().startswith(begins)


def words_of(picture: Path) -> list[str]:
    """All texts of an SVG."""
    return [one.text or "" for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("where", ["", "--saliency", "--lens", "--kind cross", "--kind encoder --layer 0 --head 1"])
def test_the_caption_of_a_picture_names_sentence_rows_and_columns(run: Path, where: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    assert heed("inspect", run, SENTENCE, "--target", "w3 w4", *where.split(), "--picture", picture) == 0
    written = words_of(picture)
    assert f"source: {SENTENCE}" in written and "translation: w3 w4" in written
    caption = " ".join(written[written.index("translation: w3 w4") + 1 :])
    assert caption.startswith("rows") and "columns" in caption
    if where == "--kind cross":
        assert "w3 w4 </s>" in caption and f"{SENTENCE} </s>" in caption


def test_the_picture_of_saliency_shows_the_computed_values(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    asked = run, SENTENCE, "--target", "w3 w4", "--saliency", "--picture", picture
    found = inspect(capsys, *asked)["interventions"]["saliency"]
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
    values = [[0.1, -0.2, 0.1] * 10, [0.1, 9.0, -0.2] * 1 + [0.1] * 27]
    saliency = {"source": values, "source_bound": [[abs(value) for value in row] for row in values]}
    assert color_limit(torch.tensor(values)) == pytest.approx(0.2)
    assert "gradient x input: colors are clipped at 0.2; the largest value is 9" in describe_saliency(saliency)
    assert color_limit(torch.tensor([[1.0, -1.5]])) == 1.5 and color_limit(torch.zeros(1, 2)) > 0


def test_the_picture_of_patching_shows_the_recovered_nats_on_one_scale(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    asked = run, SENTENCE, "--target", "w3 w4", "--patch-from", "w4 w5 w6", "--picture", picture
    places = inspect(capsys, *asked)["interventions"]["patched"]["places"]
    tips = [str(one.text) for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
    nats = [sum(tokens) for place in places for tokens in place["change"]]
    assert [tip.rpartition(": ")[2] for tip in tips] == [f"{value:.4f}" for value in nats]
    assert words_of(picture).count(f"{max(map(abs, nats)):.3g}") == 2


def test_unknown_words_are_reported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("inspect", run, "w1 zork w3", "--target", "w3 blarg") == 0
    assert "not in the model's vocabulary: zork, blarg (--target);" in capsys.readouterr().err


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
    values = [[largest, largest / 10]]
    saliency = {"source": values, "source_bound": values, "note": NOTE}
    text = saliency_text({"target_tokens": [], "end": "</s>", "source_tokens": ["w1"]}, saliency)
    assert text.startswith(f"gradient x input of each source token, in {unit}\n") and f" {shown} " in text
    assert f"its bound, in {unit}\n" in text


def test_the_picture_of_the_lens_shows_each_layers_prediction_and_probability(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    lens = inspect(capsys, run, SENTENCE, "--target", "w3 w4", "--lens", "--picture", picture)["lens"]
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
    assert heed("inspect", run, SENTENCE, "--kind", "encoder", "--by", "rollout", "--picture", tmp_path / "picture.svg") == 0
    written = words_of(tmp_path / "picture.svg")
    assert {"layer 0", "layer 1", "all heads"} <= set(written) and "head 0" not in written


def test_the_color_scale_of_rollouts_ends_at_their_largest_value(run: Path, inspection: Inspection, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    rolled = {one.layer: one.weights for one in inspection.views.rollout if one.kind.name == "encoder"}
    asked = run, SENTENCE, "--target", "w3 w4", "--kind", "encoder", "--by", "rollout", "--picture", picture
    assert heed("inspect", *asked) == 0 and len(rolled) == 2
    assert all(f"to {float(values.max()):.2g}" in words_of(picture) for values in rolled.values())
    assert heed("inspect", *asked, "--layer", "1") == 0
    assert f"{float(rolled[1].max()):.3g}" in words_of(picture)
    dark = "#{:02x}{:02x}{:02x}".format(*color(1.0, "blue"))
    cells = [one for one in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}rect") if one.get("fill") == dark]
    assert len(cells) == int((rolled[1] == rolled[1].max()).sum())


def test_the_report_contains_the_other_views(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(capsys, run, SENTENCE, "--lens", "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Logit lens</h2>" in page and "sentence" not in found
    assert (
        json.dumps(found["lens"]["tokens"], ensure_ascii=False, separators=(",", ":"))[1:-1]
        .split(",")[-1]
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        in page
    )


def test_a_report_of_corpus_views_requires_no_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(capsys, run, "--heads", "--positions", "--sentences", "4", "--html", tmp_path / "alone.html")
    page = (tmp_path / "alone.html").read_text()
    facts = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert page.index("<h2>Roles of the heads</h2>") < page.index("<h2>Positional encodings</h2>") and facts["target"] is None
    assert facts["sections"] == [found["heads"], found["positions"]]
    assert facts["title"] == [run.name] and facts["facts"] == ["transformer"]


REFUSED = [
    (("--html", "x.html"), "--html has no effect without a sentence or --heads or --positions or --experts or --cost"),
    (("--cost", "--html", "x.txt"), "expected a file name in .html"),
    (("--head", "1"), "--head has no effect without --layer"),
    (("--lens",), "--lens has no effect without a sentence"),
    (("--target", "x"), "--target has no effect without a sentence"),
    (("--data", "x"), "--data has no effect without --heads"),
    (("--sentences", "3"), "--sentences has no effect without --heads or --positions"),
    (("--rows", "3"), "--rows has no effect without --cost"),
    (("--picture", "x.svg"), "--picture has no effect without a sentence or --heads or --positions"),
    ((SENTENCE, "--cost"), "a sentence has no effect on --cost"),
    ((" ",), "given an empty sentence, expected at least one word"),
    ((SENTENCE, "--target", ""), "--target: given an empty sentence"),
    ((SENTENCE, "--patch-from", " "), "--patch-from: given an empty sentence"),
    ((SENTENCE, "--layer", "0"), "--layer has no effect without --kind"),
    ((SENTENCE, "--instead", "w1"), "--instead has no effect without --alternatives"),
    ((SENTENCE, "--lines"), "--lines has no effect without --picture"),
    ((SENTENCE, "--by", "norms", "--picture", "x.svg"), "--by has no effect without --kind"),
    (
        (SENTENCE, "--kind", "cross", "--layer", "0", "--lines", "--picture", "x.svg"),
        "--lines draws one head, but --head is missing",
    ),
    ((SENTENCE, "--kind", "cross", "--layer", "0", "--head", "0", "--by", "rollout"), "has no effect with --head"),
    (
        (SENTENCE, "--kind", "cross", "--layer", "0", "--by", "rollout"),
        "cross has no rollout, expected one of: encoder, decoder",
    ),
    ((SENTENCE, "--kind", "cross", "--by", "rollout"), "cross has no rollout, expected one of: encoder, decoder"),
    ((SENTENCE, "--heads", "--picture", "x.svg"), "--picture draws one view"),
    ((SENTENCE, "--lens", "--saliency", "--picture", "x.svg"), "--picture draws one view; given --lens and --saliency"),
    (
        (SENTENCE, "--without", "cross.0.0", "--picture", "x.svg"),
        "--without has no picture; expected one of",
    ),
    ((SENTENCE, "--alternatives", "0", "--picture", "x.svg"), "--alternatives has no picture"),
    ((SENTENCE, "--picture", "x.pdf"), "expected a file name in .svg or .png"),
    ((SENTENCE, "--html", "x.txt"), "expected a file name in .html"),
    ((SENTENCE, "--save", "x.npz"), "expected a file name in .safetensors"),
    ((SENTENCE, "--html", "/no/such/folder/x.html"), "cannot be written"),
    ((SENTENCE, "--picture", "/no/such/folder/x.svg"), "cannot be written"),
    ((SENTENCE, "--kind", "across"), "expected one of: encoder, decoder, cross"),
    (
        (SENTENCE, "--kind", "cross", "--layer", "7"),
        "--layer: given 7, expected one of: 0, 1 (the layers of kind 'cross' that have heads)",
    ),
    ((SENTENCE, "--kind", "cross", "--layer", "0", "--head", "7"), "--head: given 7, expected 0 to 1"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_an_option_without_effect_or_an_unknown_value_is_an_error(
    run: Path, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert heed("inspect", run, *arguments) == 2
    output = capsys.readouterr()
    assert output.out == "" and sentence in output.err and "Traceback" not in output.err


def test_a_notebook_gets_the_same_inspection(inspection: Inspection, run: Path, tmp_path: Path) -> None:
    assert inspection._repr_html_().startswith("<iframe")
    assert heed("inspect", run, SENTENCE, "--target", "w3 w4", "--html", tmp_path / "cli.html") == 0
    assert (tmp_path / "cli.html").read_text() == inspection.save(tmp_path / "notebook.html").read_text()


@pytest.mark.parametrize("options", [("--lens",), ("--saliency",), ("--alternatives", "0"), ("--patch-from", "w4 w5")])
def test_views_that_need_no_attention_work_for_a_model_without_any(
    options: tuple[str, ...], fixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("inspect", fixed, SENTENCE, *options) == 0
    capsys.readouterr()
    assert heed("inspect", fixed, SENTENCE) == 2
    assert options[0] in capsys.readouterr().err  # in the hint


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed")
    family = 'model={family="sutskever", dim=8, layers=1}'
    assert heed("train", write_recipe(folder), family, "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


@pytest.mark.parametrize("dim", [9, 20])
def test_the_cost_of_a_model_of_any_size_is_computed(tmp_path: Path, dim: int, capsys: pytest.CaptureFixture[str]) -> None:
    family = f'model={{family="sutskever", dim={dim}, layers=1}}'
    assert heed("train", write_recipe(tmp_path), family, "training.steps=2", "--run", tmp_path / "run") == 0
    found = inspect(capsys, tmp_path / "run", "--cost")["cost"]
    whole = next(iter(found["phases"].values()))[-1]  # of a training step
    assert whole["parameters"] == found["parameters"] and whole["kept"] == found["memory"]["activations"]
