"""Interventions: alternatives have the probabilities of the model, and continuations equal those of the search."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.errors import ConfigError, DataError
from heedful.inspection.measures.interventions import (
    HeadName,
    alternatives,
    find_token,
    lens_of,
    log_probabilities,
    patch_input,
    saliency_of,
    target_log_probabilities,
    without_heads,
)
from heedful.nn.hooks import hook_points
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.system import System
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import translate

LINE = "w1 w2 w3 w4"
CONFIG = SearchConfig(beam=3, max_extra=4)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("whatif")
    recipe, seldom = write_recipe(folder), ("training.validate_every=40", "training.save_every=40")
    assert (
        heed("train", recipe, "training.steps=40", *seldom, "--run", folder / "run", "training.schedule.learning_rate=0.01")
        == 0
    )
    return Translator.load(folder / "run")


@pytest.fixture
def example(translator: Translator) -> EncodedExample:
    return translator.encode_example(LINE, config=CONFIG)


def test_the_target_is_the_translation(translator: Translator, example: EncodedExample) -> None:
    assert [example.target.text] == translator.translate([LINE], beam=3, max_extra=4)
    assert len(example.target.ids) > 1


def test_probabilities_of_the_target_tokens_multiply_to_the_score(translator: Translator, example: EncodedExample) -> None:
    """Their product is the score of the target."""
    total = 0.0
    for at in range(len(example.target.ids) + 1):
        listed, entropy = alternatives(translator, example, at, count=len(translator.system.target_tokenizer))
        assert sum(one.probability for one in listed) == pytest.approx(1, abs=1e-4)
        assert [one.probability for one in listed] == sorted((one.probability for one in listed), reverse=True)
        bits = -sum(one.probability * math.log2(one.probability) for one in listed if one.probability)
        assert 0 < entropy == pytest.approx(bits, abs=1e-4)
        (chosen,) = [one for one in listed if one.chosen]
        total += float(torch.tensor(chosen.probability).log())
    (scored,) = translator.score([LINE], [example.target.text])
    assert scored is not None and total == pytest.approx(scored.log_probability, abs=1e-3)


@pytest.mark.parametrize("config", [CONFIG, SearchConfig(method="greedy", max_extra=4)], ids=["beam", "greedy"])
def test_continuations_equal_search_with_that_prefix(
    translator: Translator, example: EncodedExample, config: SearchConfig
) -> None:
    checked = 0
    for one in alternatives(translator, example, 1, count=6).alternatives:
        if one.piece.startswith("<"):
            continue
        prefix = [example.target.ids[0], one.token]
        again = translator.decode_example(example, prefix, config)
        text = translator.system.target_tokenizer.decode(prefix)
        (expected,) = translate(translator.system, [LINE], config, prefixes=[text])
        best = expected.candidates[0]
        assert again.tokens[:2] == prefix
        assert again == (best.text, best.tokens, best.log_probability, best.score)
        checked += 1
    assert checked >= 3


def test_a_prefix_of_the_greedy_output_gives_the_greedy_output(translator: Translator) -> None:
    greedy = SearchConfig(method="greedy", max_extra=4)
    own = translator.encode_example(LINE, config=greedy)
    assert translator.decode_example(own, own.target.ids[:2], greedy).tokens == own.target.ids


def test_tokens_are_found_by_spelling(translator: Translator, example: EncodedExample) -> None:
    listed = alternatives(translator, example, 0).alternatives
    assert find_token(translator, listed[0].piece, listed) == listed[0].token
    assert find_token(translator, "w5") == translator.system.target_tokenizer.encode("w5")[0]
    with pytest.raises(ConfigError, match="expected one token of the target vocabulary"):
        find_token(translator, "w5 w6")
    with pytest.raises(ConfigError, match="expected one token"):
        find_token(translator, "Rosalind")


def test_a_position_past_the_end_raises_an_error(translator: Translator, example: EncodedExample) -> None:
    last = len(example.target.ids)
    assert alternatives(translator, example, last).alternatives
    with pytest.raises(ConfigError, match=f"given target position {last + 1}, expected 0 to {last}"):
        alternatives(translator, example, last + 1)


def test_empty_and_too_long_sources_raise_an_error(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="given an empty text"):
        translator.encode_example("")
    short = with_system(translator, replace(translator.system, max_length=4))
    with pytest.raises(DataError, match="the source has 9 tokens; expected 1 to 4"):
        short.encode_example("w1 w2 w3 w4 w5 w6 w7 w8 w9")


def with_system(translator: Translator, system: System) -> Translator:
    return Translator(translator.run, system, translator.checkpoint)


def test_ablation_equals_zeroing_the_output_projection_of_the_head(translator: Translator, example: EncodedExample) -> None:
    """In a copy of the model."""
    pruned = copy.deepcopy(translator.model)
    projection = pruned.decoder[1].cross_attention.out  # type: ignore[index, union-attr]
    with torch.no_grad():
        projection.weight[:, 8:] = 0.0  # head 1 of two, with head_dim 8
    expected = with_system(translator, replace(translator.system, models=[pruned], engines={}))
    before = log_probabilities(translator, example)
    with without_heads(translator, [HeadName.parse("cross.1.1")]):
        assert_close(log_probabilities(translator, example), log_probabilities(expected, example))
        again = translator.decode_example(example, config=CONFIG)
        assert again.tokens == expected.decode_example(example, config=CONFIG).tokens
        assert not torch.allclose(log_probabilities(translator, example), before, atol=1e-4)
    assert torch.equal(log_probabilities(translator, example), before)
    assert not any(point.hooks for point in hook_points(translator.model).values())


def test_unknown_heads_raise_an_error(translator: Translator, example: EncodedExample) -> None:
    unknown = pytest.raises(ConfigError, match=r"no attention within\.0; this model has: encoder\.0")
    with unknown, without_heads(translator, [HeadName("within", 0, 0)]):
        pass
    too_high = pytest.raises(ConfigError, match="given head 2, expected 0 to 1")
    with too_high, without_heads(translator, [HeadName("cross", 0, 2)]):
        log_probabilities(translator, example)
    with pytest.raises(ConfigError, match=r"expected kind\.layer\.head"):
        HeadName.parse("cross:1")


def test_lens_saliency_and_patching_have_the_shape_of_the_tokens(translator: Translator, example: EncodedExample) -> None:
    steps = len(example.target.ids) + 1
    assert_close(lens_of(translator, example).logits[-1].log_softmax(-1), log_probabilities(translator, example))
    assert saliency_of(translator, example).source.shape == (steps, 5)
    own = target_log_probabilities(translator, example)
    result = patch_input(translator, example, "w1 w9 w3 w4")
    assert_close(result.first, own)
    assert [len(effect.change) for effect in result.effects] == [5, 5, steps, steps] and not result.left_out


def test_an_ensemble_averages_probabilities(translator: Translator, example: EncodedExample) -> None:
    other = copy.deepcopy(translator.model)
    with torch.no_grad():
        other.decoder[0].cross_attention.out.weight.neg_()  # type: ignore[index, union-attr]
    models = [translator.model, other]
    alone = [with_system(translator, replace(translator.system, models=[model], engines={})) for model in models]
    both = with_system(translator, replace(translator.system, models=models, engines={}))
    shares = [log_probabilities(one, example).exp() for one in alone]
    assert not torch.allclose(shares[0], shares[1], atol=1e-3)
    assert_close(log_probabilities(both, example).exp(), (shares[0] + shares[1]) / 2)
