"""heedful.inspection.positions: positional encodings, and loss by length."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

import heedful
from heedful.errors import ConfigError
from heedful.inspection.analyses.positions import PositionScheme, analyze_scheme, positions, schemes_text
from heedful.nn.positions import Learned, PatchGrid, PositionSize, Rotary, Sinusoidal
from heedful.tasks.translation.predictor import Translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("positions")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    limits = "model.position=learned", "model.max_positions=12", "data.max_length=10"
    assert heed("train", write_recipe(folder), "training.steps=2", *limits, "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def test_positions_are_analyzed_and_drawn_and_unsupported_lengths_are_reported(translator: Translator, folder: Path) -> None:
    result = positions(translator, sentences=20)
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()
    assert list(result.schemes) == ["encoder_position", "decoder_position", "(sinusoidal)"]
    table = translator.model.get_parameter("encoder_position.table.weight")
    encoding, lengths = result.schemes["encoder_position"].encoding.values, result.lengths
    assert lengths is not None and lengths.refused is not None
    assert result.reached == lengths.longest == len(encoding)  # positions beyond the data are not analyzed
    torch.testing.assert_close(encoding, table.detach()[: len(encoding)], atol=1e-5, rtol=0)
    text = result.text()
    assert "longer inputs are not supported" in text and "learned positions" in text
    assert lengths.longest <= 11 and "12 learned positions" in lengths.refused
    assert result.save(folder / "positions.png").stat().st_size > 10_000


def test_a_scheme_without_vectors_has_no_probes_and_the_reason_is_given() -> None:
    size = PositionSize(dim=16, heads=2, head_dim=8, limit=0, clip=0, reads_ahead=False)
    rotary, added = (analyze_scheme(made, 40) for made in (Rotary(size), Sinusoidal(size)))
    text = schemes_text({"here": rotary}, 40)
    assert "require vectors added to embeddings; there are none in: here." in text
    assert "probe:" not in text and "shift k" not in text and "24 positions" not in text
    text = " ".join(schemes_text({"here": added}, 40).split())
    assert "index probe:" in text and "shift k:" in text and "there are none" not in text


def test_the_loss_by_length_is_that_of_the_validation_data(translator: Translator, folder: Path) -> None:
    lengths = positions(translator, sentences=10).lengths
    assert lengths is not None
    pairs = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()[:10]]
    scored = translator.score([source for source, _ in pairs], [target for _, target in pairs])
    expected = -sum(one.log_probability for one in scored if one is not None)
    assert sum(one.sentences for one in lengths.alone) == 10
    assert sum(one.loss * one.tokens for one in lengths.alone) == pytest.approx(expected, rel=1e-4)


def test_a_model_without_positional_encoding_is_supported(tmp_path: Path) -> None:
    recurrent = "model.family=bahdanau", "model.dim=8", "model.embedding=8", "model.readout=8"
    recipe = write_recipe(tmp_path)
    others = ("layers", "heads", "feed_forward", "norm")  # options that this family does not have
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith(others)))
    assert heed("train", recipe, "training.steps=2", *recurrent, "--run", tmp_path / "run") == 0
    result = positions(heedful.load(tmp_path / "run"), sentences=6)
    assert result.schemes == {} and "no positional encoding" in result.text()
    with pytest.raises(ConfigError, match="no positional encoding to draw"):
        result.save(tmp_path / "a.png")


@pytest.mark.parametrize(("task", "reached"), [("language", 16), ("classification", 256)])
def test_without_sentence_pairs_positions_reach_the_length_of_the_data(
    tiny_runs: dict[str, Path], task: str, reached: int
) -> None:
    result = positions(heedful.load(tiny_runs[task]))
    assert result.lengths is None and result.reached == reached
    assert list(result.schemes)[-1] == "(sinusoidal)" and len(result.schemes) == 2


@pytest.mark.parametrize(
    ("task", "reached"),
    [("image_classification", 13), ("forecasting", 3), ("series_classification", 1024), ("decisions", 90)],
)
@pytest.mark.filterwarnings("error")
def test_a_model_of_images_or_windows_has_the_positions_that_it_reads(
    tiny_runs: dict[str, Path], task: str, reached: int
) -> None:
    result = positions(heedful.load(tiny_runs[task]))
    assert result.reached == reached
    scheme = next(iter(result.schemes.values()))
    assert scheme.positions == min(reached, scheme.limit or 64) == len(scheme.scores)
    assert "nan" not in result.text() and "nan" not in json.dumps(result.to_dict()).lower()


def grid_scheme(before: int) -> PositionScheme:
    """Of 3 x 4 patches with vectors that are the sum of one for the row and one for the column."""
    grid = PatchGrid(3, 4, before)
    position = Learned(PositionSize(dim=8, heads=1, head_dim=8, limit=grid.positions, clip=0, reads_ahead=True))
    position.grid = grid
    vectors = torch.eye(7)
    with torch.no_grad():
        position.table.weight[before:, :7] = torch.stack([vectors[at // 4] + vectors[3 + at % 4] for at in range(12)])
        position.table.weight[before:, 7] = 0.0
    return analyze_scheme(position, reached=1)


@pytest.mark.parametrize("before", [0, 1])
def test_the_similarity_of_patches_shows_rows_and_columns(before: int) -> None:
    scheme = grid_scheme(before)
    assert scheme.positions == 12 + before and scheme.patches is not None and scheme.cosine is not None
    expected = torch.tensor([[1.0, 0.5, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(scheme.patches.float(), expected)
    # at distance 1 (of 1, and of the root of 2): 17 pairs in a row or column, 12 in neither
    assert scheme.cosine[1] == pytest.approx(17 * 0.5 / (17 + 12))
    assert scheme.shape.toeplitz_error == pytest.approx(0.0, abs=1e-6)
    assert scheme.shape.distance_correlation is not None and scheme.shape.distance_correlation < -0.5
    text = schemes_text({"here": scheme}, 1)
    assert "here, rows apart, same column" in text and "3 x 4 patches" in text and "beyond:" not in text


def test_patches_are_drawn_beside_the_positions_of_the_caption(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    result = positions(heedful.load(tiny_runs["captioning"]))
    shapes = {name: None if one.patches is None else tuple(one.patches.shape) for name, one in result.schemes.items()}
    assert shapes == {"encoder.position": (3, 4), "position": None, "(sinusoidal, of patches)": (3, 4)}
    assert "patches by rows and columns apart" in result.svg()


def test_a_single_position_has_no_correlation() -> None:
    size = PositionSize(dim=8, heads=1, head_dim=8, limit=1, clip=0, reads_ahead=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert analyze_scheme(Learned(size), reached=1).shape.distance_correlation is None
