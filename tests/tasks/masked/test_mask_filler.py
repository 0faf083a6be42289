"""The predictor of masked language models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful.errors import DataError
from heedful.tasks.masked.evaluate import evaluation_batches
from heedful.tasks.masked.predictor import encode_masked
from heedful.text.specials import MASK
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> heedful.MaskFiller:
    folder = tmp_path_factory.mktemp("masked")
    (recipe, run) = write_tiny_recipe("masked", folder), folder / "run"
    assert heed("train", recipe, "training.steps=3", "--run", run) == 0
    return heedful.MaskFiller.load(run)


def test_each_mask_has_the_most_probable_tokens_and_the_first_fills_it(filler: heedful.MaskFiller) -> None:
    texts = ["[MASK] dog [MASK]", "the <mask> sees the dog", "[MASK]"]
    predictions = list(filler.predictions(texts, top=4))
    assert [len(prediction.masks) for prediction in predictions] == [2, 1, 1]
    for text, prediction in zip(texts, predictions, strict=True):
        assert prediction.given == text.replace("<mask>", "[MASK]")
        expected = prediction.given
        for mask in prediction.masks:
            assert [one.probability for one in mask] == sorted((one.probability for one in mask), reverse=True) and len(
                mask
            ) == 4
            assert not {one.token for one in mask} & {"<pad>", "<s>", "</s>", "<unk>", "<mask>"}
            expected = expected.replace("[MASK]", mask[0].token, 1)
        assert prediction.text == expected == filler.predict(text)
        (alone,) = filler.predictions([text], top=4)  # as in a batch of other lengths
        assert alone.text == prediction.text
        assert [one.token for mask in alone.masks for one in mask] == [one.token for mask in prediction.masks for one in mask]
        both = [[one.probability for mask in one_.masks for one in mask] for one_ in (alone, prediction)]
        torch.testing.assert_close(*both, atol=1e-6, rtol=0)


def test_a_text_without_mask_or_longer_than_a_block_is_refused(filler: heedful.MaskFiller) -> None:
    with pytest.raises(DataError, match=r"text 2, 'the dog', has no mask; expected at least one \[MASK\]"):
        filler.predict(["[MASK]", "the dog"])
    assert filler.predict("the " * 13 + "[MASK]")
    with pytest.raises(DataError, match=r"text 1 has 15 tokens; expected at most 14, since data.block is 16"):
        filler.predict("the " * 14 + "[MASK]")


def test_evaluation_compares_with_the_most_frequent_token(filler: heedful.MaskFiller) -> None:
    figures = filler.evaluate("valid")
    assert figures == filler.evaluate("valid")
    assert figures["accuracy_above_unigram"] == pytest.approx(figures["accuracy"] - figures["unigram_accuracy"])
    targets = [batch.targets for batch in evaluation_batches(filler.data, filler.text_of("valid").ids, filler.system)]
    chosen = torch.cat([rows.flatten() for rows in targets])
    chosen = chosen[chosen != filler.masking.pad]
    (common,) = filler.system.target_tokenizer.encode("dog")  # as frequent as "the", and before it in the vocabulary
    assert figures["unigram_accuracy"] == float((chosen == common).double().mean()) > 0


def test_outputs_of_an_example_are_its_masks_or_its_own_tokens(filler: heedful.MaskFiller) -> None:
    masked = filler.encode_example("the [MASK] sees")
    assert masked.outputs.steps.tolist() == [2] and masked.inputs[0] == "<s>" and masked.inputs[-1] == "</s>"
    assert filler.unknown_words("the [MASK] sings") == ["sings"]
    assert masked.outputs.pieces[0].strip("▁") == filler.predict("the [MASK] sees").split()[1]
    whole = filler.encode_example("the dog sees")
    assert whole.outputs.steps.tolist() == [1, 2, 3] and whole.outputs.ids.tolist() == whole.target.ids


def test_batches_for_analyses_have_the_losses_of_chosen_tokens(filler: heedful.MaskFiller, tmp_path: Path) -> None:
    samples = list(filler.sample_texts("valid"))
    batches = list(filler.forced_batches(samples))
    assert sum(len(batch.samples) for batch in batches) == len(samples) == 8
    for batch in batches:
        assert (batch.mask.sum(1) == 1).all() and batch.target_time == 7  # one of five tokens, between start and end
        with torch.inference_mode():
            assert bool((batch.losses() > 0).all())


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece", "bpe", "unigram", "bytes"])
def test_punctuation_after_a_mask_is_encoded_as_after_a_word(kind: str) -> None:
    """As in training, where a mask replaces the tokens of a word."""
    lines = ['the men, a man. "the men" run!', "the men run. a man"]
    sized = {"characters": {}, "unigram": {"vocab": 40}}.get(kind, {"vocab": 320, "min_frequency": 1})
    tokenizer = train_tokenizer(TokenizerConfig.model_validate({"kind": kind} | sized), lines, [MASK])
    mask, space = tokenizer.specials.mask, tokenizer.encode("a b")[1:2] if kind == "characters" else []
    assert mask is not None
    for text in ("the men, run", "the men. a man", "the men run!", "men.", "the men.\nmen!"):
        expected: list[int] = []
        for number, line in enumerate(text.split("\n")):
            head, tail = line.split("men")
            before = tokenizer.encode(head.strip())
            whole = tokenizer.encode(f"{head}men{tail}")
            rest = whole[len(tokenizer.encode(f"{head}men")) :]
            middle = [*(space if before else []), mask]
            expected += [*([tokenizer.specials.end] if number else []), *before, *middle, *rest]
        assert encode_masked(tokenizer, text.replace("men", MASK)) == expected
