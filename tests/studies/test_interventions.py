"""Interventions: alternatives have the probabilities of the model, and continuations equal those of the search."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.errors import ConfigError, DataError
from heedful.inspection.measures.interventions import (
    EncodedPair,
    HeadName,
    alternatives,
    continue_from,
    find_token,
    lens_of,
    log_probabilities,
    pair_of,
    patch_source,
    saliency_of,
    target_tokens,
    without_heads,
)
from heedful.nn.hooks import hook_points
from heedful.search import SearchConfig
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
def pair(translator: Translator) -> EncodedPair:
    return pair_of(translator.system, LINE, CONFIG)


def test_the_target_is_the_translation(translator: Translator, pair: EncodedPair) -> None:
    assert [pair.target.text] == translator.translate([LINE], beam=3, max_extra=4)
    assert len(pair.target.ids) > 1


def test_probabilities_of_the_target_tokens_multiply_to_the_score(translator: Translator, pair: EncodedPair) -> None:
    """Their product is the score of the target."""
    system, total = translator.system, 0.0
    for at in range(len(pair.target.ids) + 1):
        listed = alternatives(system, pair, at, count=len(system.target_tokenizer))
        assert sum(one.probability for one in listed) == pytest.approx(1, abs=1e-4)
        assert [one.probability for one in listed] == sorted((one.probability for one in listed), reverse=True)
        (chosen,) = [one for one in listed if one.chosen]
        total += float(torch.tensor(chosen.probability).log())
    (scored,) = translator.score([LINE], [pair.target.text])
    assert scored is not None and total == pytest.approx(scored.log_probability, abs=1e-3)


@pytest.mark.parametrize("config", [CONFIG, SearchConfig(method="greedy", max_extra=4)], ids=["beam", "greedy"])
def test_continuations_equal_search_with_that_prefix(translator: Translator, pair: EncodedPair, config: SearchConfig) -> None:
    assert pair.source is not None
    system, checked = translator.system, 0
    for one in alternatives(system, pair, 1, count=6):
        if one.piece.startswith("<"):
            continue
        prefix = [pair.target.ids[0], one.token]
        again = continue_from(system, pair.source, config, prefix)
        text = system.target_tokenizer.decode(prefix)
        (expected,) = translate(system, [LINE], config, prefixes=[text])
        assert again.tokens[:2] == prefix
        assert again == expected.candidates[0]
        checked += 1
    assert checked >= 3


def test_a_prefix_of_the_greedy_output_gives_the_greedy_output(translator: Translator, pair: EncodedPair) -> None:
    greedy = SearchConfig(method="greedy", max_extra=4)
    own = pair_of(translator.system, LINE, greedy)
    assert own.source is not None
    assert continue_from(translator.system, own.source, greedy, own.target.ids[:2]).tokens == own.target.ids


def test_tokens_are_found_by_spelling(translator: Translator, pair: EncodedPair) -> None:
    listed = alternatives(translator.system, pair, 0)
    assert find_token(translator.system, listed[0].piece, listed) == listed[0].token
    assert find_token(translator.system, "w5") == translator.system.target_tokenizer.encode("w5")[0]
    with pytest.raises(ConfigError, match="expected one token of the target vocabulary"):
        find_token(translator.system, "w5 w6")
    with pytest.raises(ConfigError, match="expected one token"):
        find_token(translator.system, "Rosalind")


def test_a_position_past_the_end_raises_an_error(translator: Translator, pair: EncodedPair) -> None:
    last = len(pair.target.ids)
    assert alternatives(translator.system, pair, last)
    with pytest.raises(ConfigError, match=f"given target position {last + 1}, expected 0 to {last}"):
        alternatives(translator.system, pair, last + 1)


def test_empty_and_too_long_sources_raise_an_error(translator: Translator) -> None:
    with pytest.raises(DataError, match="the source has 0 tokens"):
        pair_of(translator.system, "", CONFIG)
    with pytest.raises(DataError, match="the source has 9 tokens; expected 1 to 4"):
        pair_of(replace(translator.system, max_length=4), "w1 w2 w3 w4 w5 w6 w7 w8 w9", CONFIG)


def test_ablation_equals_zeroing_the_output_projection_of_the_head(translator: Translator, pair: EncodedPair) -> None:
    """In a copy of the model."""
    pruned = copy.deepcopy(translator.model)
    weight = pruned.get_parameter("decoder.1.cross_attention.out.weight")
    with torch.no_grad():
        weight[:, 8:] = 0.0  # head 1 of two, with head_dim 8
    expected = replace(translator.system, models=[pruned], engines={})
    before = log_probabilities(translator.system, pair)
    with without_heads(translator.system, [HeadName.parse("cross.1.1")]) as ablated:
        assert_close(log_probabilities(ablated, pair), log_probabilities(expected, pair))
        assert pair.source is not None
        again = continue_from(ablated, pair.source, CONFIG, [])
        assert again.tokens == continue_from(expected, pair.source, CONFIG, []).tokens
        assert not torch.allclose(log_probabilities(ablated, pair), before, atol=1e-4)
    assert torch.equal(log_probabilities(translator.system, pair), before)
    assert not any(point.hooks for point in hook_points(translator.model).values())


def test_unknown_heads_raise_an_error(translator: Translator, pair: EncodedPair) -> None:
    unknown = pytest.raises(ConfigError, match=r"no attention within\.0; this model has: encoder\.0")
    with unknown, without_heads(translator.system, [HeadName("within", 0, 0)]):
        pass
    too_high = pytest.raises(ConfigError, match="given head 2, expected 0 to 1")
    with too_high, without_heads(translator.system, [HeadName("cross", 0, 2)]) as ablated:
        log_probabilities(ablated, pair)
    with pytest.raises(ConfigError, match=r"expected kind\.layer\.head"):
        HeadName.parse("cross:1")


def test_lens_saliency_and_patching_have_the_shape_of_the_tokens(translator: Translator, pair: EncodedPair) -> None:
    system, steps = translator.system, len(pair.target.ids) + 1
    assert_close(lens_of(system, pair).logits[-1].log_softmax(-1), log_probabilities(system, pair))
    assert saliency_of(system, pair).source.shape == (steps, 5)
    own = log_probabilities(system, pair).gather(-1, target_tokens(system, pair)[:, None])[:, 0]
    result = patch_source(system, pair, "w1 w9 w3 w4")
    assert_close(result.first, own)
    assert [len(effect.change) for effect in result.effects] == [5, 5, steps, steps] and not result.left_out


def test_an_ensemble_averages_probabilities(translator: Translator, pair: EncodedPair) -> None:
    other = copy.deepcopy(translator.model)
    with torch.no_grad():
        other.get_parameter("decoder.0.cross_attention.out.weight").neg_()
    alone = [replace(translator.system, models=[model], engines={}) for model in (translator.model, other)]
    both = replace(translator.system, models=[translator.model, other], engines={})
    shares = [log_probabilities(system, pair).exp() for system in alone]
    assert not torch.allclose(shares[0], shares[1], atol=1e-3)
    assert_close(log_probabilities(both, pair).exp(), (shares[0] + shares[1]) / 2)
