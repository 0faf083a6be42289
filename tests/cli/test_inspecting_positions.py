"""heed inspect --positions, --lens and what if: what is printed is what was found, and that can be written as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

from heedful.build import Translator, load, load_translator
from heedful.cli.inspecting import interventions, lens, positions
from heedful.errors import ConfigError
from heedful.inspection.saliency import NOTE
from heedful.nn.positions import PositionSize, Rotary, Sinusoidal

LINE = "w1 w2 w3 w4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspecting")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    limits = "model.position=learned", "model.max_positions=12", "data.max_length=10"
    assert heed("train", write_recipe(folder), "training.steps=2", *limits, "--run", folder / "run") == 0
    return load_translator(folder / "run")


def test_positions_are_told_and_drawn_and_what_is_too_long_is_said_to_be_refused(translator: Translator, folder: Path) -> None:
    found = json.loads(json.dumps(positions.found(translator, sentences=20)))
    assert list(found["schemes"]) == ["encoder_position", "decoder_position", "(fixed instead)"]
    table = translator.model.get_parameter("encoder_position.table.weight")  # type: ignore[attr-defined]
    said = torch.tensor(found["schemes"]["encoder_position"]["encoding"])
    assert found["reached"] == found["lengths"]["longest"] == len(said)  # what training did not reach is not looked at
    torch.testing.assert_close(said, table.detach()[: len(said)], atol=1e-5, rtol=0)
    text = positions.as_text(found)
    assert "refused" in text and "learned positions" in text
    assert found["lengths"]["longest"] <= 11 and "12 learned positions" in found["lengths"]["refused"]
    positions.draw(found, folder / "positions.png")
    assert (folder / "positions.png").stat().st_size > 10_000


def test_where_nothing_is_added_to_words_the_reason_is_told_and_nothing_else_explained() -> None:
    size = PositionSize(dim=16, heads=2, head_dim=8, limit=0, clip=0, reads_ahead=False)
    rotary, added = (positions.scheme_found(made, 40) for made in (Rotary(size), Sinusoidal(size)))
    text = positions.schemes_text({"here": rotary}, 40)
    assert "of vectors that are added to words; there are none in: here." in text
    assert "probe:" not in text and "going on" not in text and "need" not in text
    text = positions.schemes_text({"here": added}, 40)
    assert "index probe:" in text and "going on by k:" in text and "there are none" not in text


def test_the_loss_by_length_is_that_of_the_validation_data(translator: Translator, folder: Path) -> None:
    found = positions.found(translator, sentences=10)["lengths"]["alone"]
    pairs = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()[:10]]
    scored = translator.score([source for source, _ in pairs], [target for _, target in pairs])
    expected = -sum(one.log_probability for one in scored if one is not None)
    assert sum(one["sentences"] for one in found) == 10
    assert sum(one["loss"] * one["tokens"] for one in found) == pytest.approx(expected, rel=1e-4)


def test_a_model_without_positions_says_so(tmp_path: Path) -> None:
    recurrent = "model.family=bahdanau", "model.dim=8", "model.embedding=8", "model.readout=8"
    recipe = write_recipe(tmp_path)
    others = ("layers", "heads", "feed_forward", "norm")  # which it does not have
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith(others)))
    assert heed("train", recipe, "training.steps=2", *recurrent, "--run", tmp_path / "run") == 0
    worker = load(tmp_path / "run")
    found = positions.found(worker, sentences=6)
    assert found["schemes"] == {} and "no position scheme" in positions.as_text(found)
    with pytest.raises(ConfigError, match="there is none to draw"):
        positions.draw(found, tmp_path / "a.png")
    read = lens.found(worker, LINE, "w4 w3")
    assert [layer["name"] for layer in read["layers"]] == ["decoder.out"]


def test_the_lens_ends_with_what_the_model_says(translator: Translator) -> None:
    found = json.loads(json.dumps(lens.found(translator, LINE, target="w4 w3 w2")))
    last = found["layers"][-1]
    assert last["predicted"] == found["final"] and set(last["final_rank"]) == {1}
    assert len(found["layers"]) == 2 and len(found["tokens"]) == 4
    assert f"{last['predicted'][1]} {last['probability'][1]:.2f}" in lens.as_text(found)


def test_all_that_can_be_asked_of_a_sentence_is_answered(translator: Translator) -> None:
    asked = interventions.Asked(
        alternatives=1, instead="w7", saliency=True, patch_from="w1 w9 w3 w4", without=["cross.0.0", "encoder.1.1"]
    )
    found = json.loads(json.dumps(interventions.found(translator, LINE, asked, target="w4 w3 w2 w1")))
    assert found["instead"]["translation"].split()[:2] == ["w4", "w7"]
    assert len(found["alternatives"]) == 20 and len(found["patched"]["places"]) == 4
    assert len(found["saliency"]["source"]) == 5 == len(found["saliency"]["attention"])
    text = interventions.as_text(found)
    assert NOTE in text and "without cross.0.0, encoder.1.1" in text and "encoder.0.out" in text
    first = sum(found["patched"]["log_probability"]["source"])
    (scored,) = translator.score([LINE], ["w4 w3 w2 w1"])
    assert scored is not None and first == pytest.approx(scored.log_probability, abs=1e-4)


@pytest.mark.parametrize(("change", "told"), [(0.005, "gains 0.005 nats"), (-0.25, "loses 0.250 nats")])
def test_what_is_gained_without_a_head_is_not_a_loss_below_zero(change: float, told: str) -> None:
    without = {"heads": ["cross.0.0"], "translation": "w1", "log_probability": -1.0, "change": change}
    assert f"what was said before {told}" in interventions.as_text({"target_tokens": [], "end": "</s>", "without": without})


def test_a_token_without_a_place_is_refused(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="--instead was given without --alternatives"):
        interventions.found(translator, LINE, interventions.Asked(instead="w7"))
