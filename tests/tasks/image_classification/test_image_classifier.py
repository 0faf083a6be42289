"""A Vision Transformer on scikit-learn's digits: it learns them, needs the order of the patches, and refuses other files."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from tiny_tasks import write_tiny_recipe
from torch import Tensor
from workshop import heed

import heedful
from heedful.config.toml import write_toml
from heedful.data.image_files import Pixels
from heedful.errors import ConfigError, DataError
from heedful.inspection import attention
from heedful.models.vit import Vit, VitConfig
from heedful.nn.hooks import record
from heedful.nn.patches import join_patches, split_patches
from heedful.runs.build import check, data_of
from heedful.runs.config import read_run
from heedful.serving.served import Loading, open_model
from heedful.tasks.image_classification.data import ImageSet
from heedful.tasks.image_classification.evaluate import logits_of
from heedful.tasks.image_classification.predictor import ImageClassifier
from heedful.tasks.image_classification.report import nearest_mean
from heedful.tasks.image_inputs import input_of

MODEL = {"family": "vit", "dim": 32, "layers": 2, "heads": 4, "image_size": [8, 8], "channels": 1, "patch": 2, "dropout": 0.0}
SCHEDULE = {"name": "cosine", "learning_rate": 3e-3, "warmup": 40}


def digits() -> tuple[Pixels, list[str]]:
    """1,797 images of 8 x 8 pixels."""
    found: Any = load_digits()
    return (found.images * 15).astype(np.uint8), [str(label) for label in found.target]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on four of five digits as PNG files in a folder for each label; the rest is for validation."""
    folder = tmp_path_factory.mktemp("digits")
    for number, (image, label) in enumerate(zip(*digits(), strict=True)):
        file = folder / ("valid" if number % 5 == 0 else "train") / label / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    config = {
        "data": {"form": "images", "folder": str(folder), "batch": 64},
        "task": {"name": "image_classification", "label_smoothing": 0.1},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": MODEL,
        "training": {"steps": 330, "save_every": 330, "validate_every": 330, "metric": "accuracy", "schedule": SCHEDULE},
    }
    (folder / "recipe.toml").write_text(write_toml(config))
    assert heed("train", folder / "recipe.toml", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def classifier(run: Path) -> ImageClassifier:
    return ImageClassifier.load(run, device="cpu")


def test_digits_are_learned(classifier: ImageClassifier) -> None:
    assert classifier.run.task.labels == tuple("0123456789")
    assert classifier.evaluate("valid")["accuracy"] > 0.9


def test_shuffled_patches_are_not_recognized(classifier: ImageClassifier) -> None:
    """The positions of the patches matter: the same patches in another order have other labels."""
    images = classifier.split_images("valid")
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    patches = split_patches(torch.from_numpy(images.pixels.copy()), 2)[:, order]
    shuffled = images._replace(pixels=join_patches(patches, 2, 4).numpy())
    logits = logits_of(classifier.classifier, classifier.system, shuffled)
    assert (logits.argmax(1) == images.labels).mean() < 0.5


def test_without_positions_shuffled_patches_are_recognized_as_well() -> None:
    """A bag of patches: it learns something, and no order of the patches changes its predictions."""
    torch.manual_seed(1)
    pixels, names = digits()
    images, labels = torch.from_numpy(pixels)[..., None], torch.tensor([int(name) for name in names])
    held_out = torch.arange(len(labels)) % 5 == 0
    body = Vit(VitConfig.model_validate(MODEL | {"position": "none", "pooling": "mean"}))
    head = torch.nn.Linear(body.config.dim, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    train_images, train_labels = images[~held_out], labels[~held_out]
    for _ in range(100):
        chosen = torch.randint(len(train_labels), (64,))
        optimizer.zero_grad()
        logits = head(body.first_state(body.encode(train_images[chosen])))
        torch.nn.functional.cross_entropy(logits, train_labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    order = torch.randperm(16)
    shuffled = join_patches(split_patches(images[held_out], 2)[:, order], 2, 4)
    with torch.inference_mode():
        plain, moved = (head(body.eval().first_state(body.encode(each))) for each in (images[held_out], shuffled))
    assert torch.allclose(plain, moved, atol=1e-3)
    assert (plain.argmax(1) == labels[held_out]).float().mean() > 0.35


def test_a_path_an_array_and_a_data_uri_have_the_same_prediction(classifier: ImageClassifier, run: Path) -> None:
    path = next((run.parent / "valid" / "3").iterdir())
    uri = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    images = [str(path), path, uri, np.asarray(Image.open(path)), Image.open(path)]
    assert len({classifier.predict(image) for image in images}) == 1
    first, *others = classifier.predict_proba(images)
    assert all(classifier.predict_proba(image) == pytest.approx(first, abs=1e-6) for image in images)
    trained_on = input_of(Image.open(path), 1)  # as an example of heedful.train
    assert classifier.predict_proba(trained_on) == pytest.approx(first, abs=1e-6)
    assert all(other == pytest.approx(first, abs=1e-6) for other in others)
    assert sum(first.values()) == pytest.approx(1.0)


def test_images_are_arguments_of_predict(classifier: ImageClassifier, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted((run.parent / "valid" / "5").iterdir())[:4]
    capsys.readouterr()
    assert heed("classify-images", run, *files) == 0
    assert capsys.readouterr().out.split() == classifier.predict(files)
    assert heed("predict", run, *files, "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in printed] == [str(file) for file in files]


def test_a_folder_is_no_image(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run.parent / "valid" / "5"
    capsys.readouterr()
    assert heed("classify-images", run, folder) == 3
    message = capsys.readouterr().err
    assert f"{folder} is a folder; expected images, or a text file with the path of an image in each line" in message
    assert f"hint: give the images in it, as {folder}/*.png" in message
    assert heed("inspect", "image", run, folder) == 3
    assert f"the image, {folder}, is a folder; expected an image" in capsys.readouterr().err


def test_a_broken_image_is_one_sentence_after_the_predictions_before_it(
    classifier: ImageClassifier, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = next((run.parent / "valid" / "5").iterdir()), tmp_path / "bad.png"
    bad.write_bytes(good.read_bytes()[:60])
    capsys.readouterr()
    assert heed("predict", run, good, bad, good) == 3
    output = capsys.readouterr()
    assert output.out.split() == [classifier.predict(good)]
    assert f"example 2, {bad}, is truncated or damaged" in output.err and "Traceback" not in output.err
    missing = tmp_path / "missing.png"
    assert heed("predict", run, missing) == 3
    assert str(missing) in capsys.readouterr().err


def test_broken_training_images_are_listed_and_too_many_stop_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "valid"):
        for label in "01":
            (tmp_path / split / label).mkdir(parents=True)
            for source in sorted((run.parent / split / label).iterdir())[:20]:
                os.link(source, tmp_path / split / label / source.name)
    broken = tmp_path / "train" / "1" / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n")
    changes = [f"data.folder={tmp_path}", "training.steps=1"]
    config = read_run(run.parent / "recipe.toml", changes).config
    lines: list[str] = []
    assert check(config, data_of(config), lines.append).corpora[0].kept == 40
    assert any(f"{broken}: it is" in line for line in lines) and "1 image that cannot be read, skipped" in "".join(lines)
    capsys.readouterr()
    assert heed("train", run.parent / "recipe.toml", *changes, "data.max_unusable=0.01", "--run", tmp_path / "run") == 3
    message = capsys.readouterr().err
    assert "1 of 41 images are unusable" in message and str(broken) in message
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_label_that_is_not_known_is_refused(run: Path, tmp_path: Path) -> None:
    config = read_run(run.parent / "recipe.toml", ['task.labels=["0", "1", "2"]']).config
    with pytest.raises(DataError, match="has the label '3'; expected one of: 0, 1, 2"):
        data_of(config).check()


def test_a_server_does_not_read_paths(run: Path) -> None:
    served = ImageClassifier.of(open_model(run, Loading(device="cpu")))
    path = next((run.parent / "valid" / "3").iterdir())
    with pytest.raises(DataError, match="is a path, which a server does not read"):
        served.predict(str(path))
    assert served.predict(np.asarray(Image.open(path)))


def test_an_array_of_another_size_is_refused(classifier: ImageClassifier) -> None:
    with pytest.raises(DataError, match=r"is 9 pixels wide and 8 high, expected 8 and 8; set data.resize = true"):
        classifier.predict(np.zeros((8, 9), np.uint8))
    with pytest.raises(ConfigError, match="has no options"):
        classifier.predict(np.zeros((8, 8), np.uint8), beam=3)


def test_attention_of_an_image_is_that_of_its_patches(classifier: ImageClassifier, run: Path) -> None:
    path = next((run.parent / "valid" / "3").iterdir())
    example = classifier.encode_example(str(path))
    assert example.inputs == ["[CLS]", *(f"{row},{column}" for row in range(1, 5) for column in range(1, 5))]
    assert example.label == classifier.predict(path)
    layer = classifier.model.attentions()[0]
    with torch.inference_mode(), record(classifier.model, layer.weights) as recorded:
        example.forward(classifier.model)
    weights: Tensor = recorded[layer.weights]
    assert weights.shape == (1, 4, 17, 17)
    assert attention(classifier, str(path)).to_dict()


def test_a_picture_of_another_format_is_read(classifier: ImageClassifier, run: Path, tmp_path: Path) -> None:
    source = next((run.parent / "valid" / "3").iterdir())
    stream = io.BytesIO()
    Image.open(source).save(stream, "BMP")
    (tmp_path / "three.bmp").write_bytes(stream.getvalue())
    assert classifier.predict_proba([tmp_path / "three.bmp"]) == classifier.predict_proba([source])


def test_the_nearest_mean_image_is_that_of_all_distances() -> None:
    draw = np.random.default_rng(0)
    train, tested = (
        ImageSet(draw.integers(0, 256, (50, 3, 4, 1), dtype=np.uint8), draw.permutation(50)[:rows], draw.integers(0, 3, rows))
        for rows in (40, 20)
    )
    pixels = train.pixels[train.rows].astype(float)
    means = np.stack([pixels[train.labels == label].mean(0) for label in range(3)])
    distances = ((tested.pixels[tested.rows][:, None] - means) ** 2).sum((2, 3, 4))
    assert nearest_mean(train, tested, 4).tolist() == distances.argmin(1).tolist()  # label 3 has no image


@pytest.mark.parametrize("kind", ["grid", "edges", "matrix"])
def test_a_run_keeps_the_structure_of_its_patches(kind: str, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    np.save(tmp_path / "matrix.npy", -np.ones((12, 12)))
    options = {
        "grid": '{kind="grid", radius=2}',
        "edges": f'{{kind="edges", file="{tmp_path}/edges.csv", positions=12}}',
        "matrix": f'{{kind="matrix", file="{tmp_path}/matrix.npy", positions=12, values="bias"}}',
    }
    recipe = write_tiny_recipe("image_classification", tmp_path)
    changes = [f"model.structure={options[kind]}", "training.steps=2"]
    assert heed("train", recipe, *changes, "--run", tmp_path / "run") == 0
    for file in ("edges.csv", "matrix.npy"):
        (tmp_path / file).unlink()
    model: Any = heedful.load(tmp_path / "run").model.base_model
    with torch.inference_mode(), record(model, "layers.0.self_attention.weights") as recorded:
        model.encode(torch.zeros(1, 6, 8, 3, dtype=torch.uint8))
    attended = (recorded["layers.0.self_attention.weights"][0, :, 1:, 1:] > 0).all(0)
    counts = {"grid": [9, 12, 12, 9] * 3, "edges": [2, 3, 2, *[1] * 9], "matrix": [12] * 12}
    assert attended.sum(1).tolist() == counts[kind]
