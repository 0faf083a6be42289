"""heed inspect --positions, --lens and interventions: the text shows the result, and the result is valid JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

from heedful.errors import ConfigError
from heedful.inspection.analyses import interventions, lens, positions
from heedful.inspection.measures.saliency import NOTE
from heedful.nn.positions import PositionSize, Rotary, Sinusoidal
from heedful.runs.load import load
from heedful.tasks.translation.predictor import Translator

LINE = "w1 w2 w3 w4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspecting")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    limits = "model.position=learned", "model.max_positions=12", "data.max_length=10"
    assert heed("train", write_recipe(folder), "training.steps=2", *limits, "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def test_positions_are_analyzed_and_drawn_and_unsupported_lengths_are_reported(translator: Translator, folder: Path) -> None:
    result = json.loads(json.dumps(positions.compute(translator, sentences=20)))
    assert list(result["schemes"]) == ["encoder_position", "decoder_position", "(sinusoidal)"]
    table = translator.model.get_parameter("encoder_position.table.weight")
    encoding = torch.tensor(result["schemes"]["encoder_position"]["encoding"])
    assert result["reached"] == result["lengths"]["longest"] == len(encoding)  # positions beyond the data are not analyzed
    torch.testing.assert_close(encoding, table.detach()[: len(encoding)], atol=1e-5, rtol=0)
    text = positions.format_text(result)
    assert "longer inputs are not supported" in text and "learned positions" in text
    assert result["lengths"]["longest"] <= 11 and "12 learned positions" in result["lengths"]["refused"]
    positions.draw(result, folder / "positions.png")
    assert (folder / "positions.png").stat().st_size > 10_000


def test_a_scheme_without_vectors_has_no_probes_and_the_reason_is_given() -> None:
    size = PositionSize(dim=16, heads=2, head_dim=8, limit=0, clip=0, reads_ahead=False)
    rotary, added = (positions.analyze_scheme(made, 40) for made in (Rotary(size), Sinusoidal(size)))
    text = positions.schemes_text({"here": rotary}, 40)
    assert "require vectors added to embeddings; there are none in: here." in text
    assert "probe:" not in text and "shift k" not in text and "24 positions" not in text
    text = positions.schemes_text({"here": added}, 40)
    assert "index probe:" in text and "shift k:" in text and "there are none" not in text


def test_the_loss_by_length_is_that_of_the_validation_data(translator: Translator, folder: Path) -> None:
    lengths = positions.compute(translator, sentences=10)["lengths"]["alone"]
    pairs = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()[:10]]
    scored = translator.score([source for source, _ in pairs], [target for _, target in pairs])
    expected = -sum(one.log_probability for one in scored if one is not None)
    assert sum(one["sentences"] for one in lengths) == 10
    assert sum(one["loss"] * one["tokens"] for one in lengths) == pytest.approx(expected, rel=1e-4)


def test_a_model_without_positional_encoding_is_supported(tmp_path: Path) -> None:
    recurrent = "model.family=bahdanau", "model.dim=8", "model.embedding=8", "model.readout=8"
    recipe = write_recipe(tmp_path)
    others = ("layers", "heads", "feed_forward", "norm")  # options that this family does not have
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith(others)))
    assert heed("train", recipe, "training.steps=2", *recurrent, "--run", tmp_path / "run") == 0
    worker = load(tmp_path / "run")
    result = positions.compute(worker, sentences=6)
    assert result["schemes"] == {} and "no positional encoding" in positions.format_text(result)
    with pytest.raises(ConfigError, match="no positional encoding to draw"):
        positions.draw(result, tmp_path / "a.png")
    result = lens.compute(worker, LINE, "w4 w3")
    assert [layer["name"] for layer in result["layers"]] == ["decoder.out"]


def test_the_last_layer_of_the_lens_is_the_models_prediction(translator: Translator) -> None:
    result = json.loads(json.dumps(lens.compute(translator, LINE, target="w4 w3 w2")))
    last = result["layers"][-1]
    assert last["predicted"] == result["final"] and set(last["final_rank"]) == {1}
    assert len(result["layers"]) == 2 and len(result["tokens"]) == 4
    assert f"{last['predicted'][1]} {last['probability'][1]:.2f}" in lens.format_text(result)


def test_all_interventions_work_together(translator: Translator) -> None:
    requested = interventions.Interventions(
        alternatives=1, instead="w7", saliency=True, patch_from="w1 w9 w3 w4", without=["cross.0.0", "encoder.1.1"]
    )
    result = json.loads(json.dumps(interventions.compute(translator, LINE, requested, target="w4 w3 w2 w1")))
    assert result["instead"]["translation"].split()[:2] == ["w4", "w7"]
    assert len(result["alternatives"]) == 20 and len(result["patched"]["places"]) == 4
    assert len(result["saliency"]["source"]) == 5 == len(result["saliency"]["attention"])
    text = interventions.format_text(result)
    assert NOTE in text and "without cross.0.0, encoder.1.1" in text and "encoder.0.out" in text
    first = sum(result["patched"]["log_probability"]["source"])
    (scored,) = translator.score([LINE], ["w4 w3 w2 w1"])
    assert scored is not None and first == pytest.approx(scored.log_probability, abs=1e-4)


@pytest.mark.parametrize(("change", "shown"), [(0.005, "+0.005"), (-0.25, "-0.250")])
def test_the_effect_of_removing_a_head_is_shown_with_its_sign(change: float, shown: str) -> None:
    without = {"heads": ["cross.0.0"], "translation": "w1", "log_probability": -1.0, "change": change}
    text = interventions.format_text({"target_tokens": [], "end": "</s>", "without": without})
    assert f"log p of the target above: {shown}" in text


def test_a_forced_token_requires_a_position(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="--instead requires --alternatives"):
        interventions.compute(translator, LINE, interventions.Interventions(instead="w7"))
