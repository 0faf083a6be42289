"""Captioning: arrays, paths and data URIs agree, search options, errors in one sentence, a server, and gold patches."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from workshop import heed

import heedful
from heedful.config.toml import write_toml
from heedful.data.image_files import Pixels, encode_data_uri, encode_png
from heedful.errors import ConfigError, DataError
from heedful.serving.served import Loading, open_model
from heedful.tasks.captioning.data import make_batch
from heedful.tasks.captioning.evaluate import score_captions
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.continuous_batching import run_jobs
from heedful.tasks.translation.evaluate import token_scores

FUNCTION_WORDS = ("a", "two", "three", "above", "below", "left", "right", "of", "between", "and")
CONFIG = {
    "data": {"form": "captions", "builtin": "shapes", "counts": {"train": 40, "valid": 6, "test": 6}, "batch": 8},
    "task": {"name": "captioning", "samples": 0},
    "tokenizer": {"kind": "words", "min_frequency": 1},
    "model": {
        "family": "vision_encoder_decoder",
        "dim": 16,
        "layers": 1,
        "heads": 2,
        "image_size": [16, 16],
        "patch": 4,
        "stem": "convolution",
    },
    "training": {"steps": 8, "save_every": 8, "validate_every": 8},
    "search": {"max_length": 12},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captions")
    (folder / "recipe.toml").write_text(write_toml(CONFIG))
    assert heed("train", folder / "recipe.toml", "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def captioner(run: Path) -> Captioner:
    return Captioner.load(run, device="cpu")


@pytest.fixture(scope="module")
def pictures(captioner: Captioner) -> list[Pixels]:
    images = captioner.split_images("test")
    return [np.array(images.pixels[row]) for row in images.rows]


def test_a_path_an_array_and_a_data_uri_have_the_same_caption(
    captioner: Captioner, pictures: list[Pixels], tmp_path: Path
) -> None:
    file = tmp_path / "picture.png"
    Image.fromarray(pictures[0]).save(file)
    captions = captioner.predict([pictures[0], file, str(file), encode_data_uri(pictures[0])])
    assert len(set(captions)) == 1 and captioner.predict(file) == captions[0]


def test_a_batch_of_captions_equals_each_alone_and_jobs_of_a_server(captioner: Captioner, pictures: list[Pixels]) -> None:
    uris = [encode_data_uri(picture) for picture in pictures]
    for options in ({"beam": 3}, {"method": "greedy"}, {"method": "sample", "seed": 3}):
        together = [one.candidates[0] for one in captioner.predictions(uris, **options)]
        jobs = [captioner.job(uri, number=at, **options) for at, uri in enumerate(uris)]
        served = [caption.candidates[0] for caption in run_jobs(captioner.decoder(), jobs)]
        assert [one.text for one in served] == [one.text for one in together]
        assert [one.log_probability for one in served] == pytest.approx([one.log_probability for one in together], abs=1e-4)
        if options.get("method") != "sample":
            alone = [next(iter(captioner.predictions([uri], **options))).candidates[0] for uri in uris]
            assert [one.text for one in alone] == [one.text for one in together]


def test_candidates_of_several_images_are_in_the_predictions(captioner: Captioner, pictures: list[Pixels]) -> None:
    found = list(captioner.predictions(pictures[:2], beam=4, n_best=2))
    assert [len(one.candidates) for one in found] == [2, 2]
    assert [one.candidates[0].text for one in found] == captioner.predict(pictures[:2], beam=4)


def test_an_image_with_another_suffix_is_named_as_such(
    run: Path, pictures: list[Pixels], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.xyz").write_bytes(encode_png(pictures[0]))
    capsys.readouterr()
    assert heed("predict", run, tmp_path / "a.xyz") == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert (
        "a.xyz is a PNG image with the suffix '.xyz'; expected one of .png, .jpg" in shown and "hint: rename the file" in shown
    )


def test_the_score_of_a_generated_caption_is_its_log_probability(captioner: Captioner, pictures: list[Pixels]) -> None:
    """By its tokens: a hardly trained model generates special ones, which its text does not have."""
    found = [caption.candidates[0] for caption in captioner.predictions(pictures, method="greedy")]
    specials = captioner.system.target_tokenizer.specials
    for pixels, one in zip(pictures, found, strict=True):
        scores = token_scores(captioner.system, make_batch(pixels[None], [one.tokens], specials))
        assert float(scores.sum()) == pytest.approx(one.log_probability, abs=1e-4)
    (scored,) = captioner.score(pictures[:1], ["a red circle"])
    batch = make_batch(pictures[0][None], [captioner.system.target_tokenizer.encode("a red circle")], specials)
    assert scored is not None and scored.tokens == 4
    assert scored.log_probability == pytest.approx(float(token_scores(captioner.system, batch).sum()), abs=1e-4)


def test_a_caption_that_is_too_long_is_not_scored(captioner: Captioner, pictures: list[Pixels]) -> None:
    images = captioner.split_images("test").select([0, 1])
    first, second = score_captions(captioner.system, images._replace(captions=["a red circle", "a " * 65]))
    assert first is not None and second is None


def test_gold_patches_are_those_of_the_samples(captioner: Captioner) -> None:
    samples = list(captioner.sample_texts("test"))
    assert len(samples) == 6
    for sample in samples:
        assert sample.alignment is not None and sample.target is not None
        words = sample.target.split()
        content = {at for at, word in enumerate(words) if word not in FUNCTION_WORDS}
        assert {word for _, word in sample.alignment.sure} == content
    (batch, *_) = captioner.forced_batches(samples)
    assert batch.source_time == 16 and bool(batch.losses().isfinite().all())


@pytest.mark.parametrize("option", ["coverage=0.2", "max_extra=3", "replace_unknown=true"])
def test_search_options_that_read_a_text_are_refused(captioner: Captioner, option: str) -> None:
    with pytest.raises(ConfigError, match="has no effect on a captioner"):
        captioner.search_config([option])


def test_a_broken_image_is_one_sentence_after_the_captions_before_it(
    captioner: Captioner, run: Path, pictures: list[Pixels], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, small = (tmp_path / name for name in ("good.png", "bad.png", "small.png"))
    Image.fromarray(pictures[0]).save(good)
    stream = io.BytesIO()
    Image.fromarray(pictures[0]).save(stream, "PNG")
    bad.write_bytes(stream.getvalue()[:60])
    Image.fromarray(pictures[0][:8]).save(small)
    capsys.readouterr()
    for file, sentence in ((bad, "truncated or damaged"), (small, "set data.resize = true"), (tmp_path / "no.png", "no.png")):
        assert heed("caption", run, good, file) == 3
        output = capsys.readouterr()
        assert output.out == f"{captioner.predict(good)}\n" and sentence in output.err
        assert len(output.err.strip().splitlines()) <= 3


def test_a_server_reads_data_uris_and_no_paths(run: Path, pictures: list[Pixels], tmp_path: Path) -> None:
    served = Captioner.of(open_model(run, Loading(device="cpu")))
    assert isinstance(served.predict(encode_data_uri(pictures[0])), str)
    with pytest.raises(DataError, match="is a path, which a server does not read"):
        served.job(str(tmp_path / "picture.png"))


def test_grayscale_models_and_captions_of_colors_do_not_fit(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.channels: given 1, but the captions of data\.builtin name colors"):
        heedful.train(run.parent / "recipe.toml", {"model.channels": 1}, run=run.parent / "gray")
