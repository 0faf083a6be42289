"""Traces: the maps of what was really said, with the tokens that look and those that are looked at."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.build import Translator, load
from heedful.inspection.alignment import merge_into_words
from heedful.inspection.attention_maps import attention_maps
from heedful.inspection.attention_norms import attention_norms
from heedful.search import SearchConfig
from heedful.studies.trace import Tokens, Trace, names_or_numbers, trace_text, trace_translation, views_of
from heedful.tasks.translate import collate_one

FAMILIES = ("transformer", "bahdanau", "gpt")


@pytest.fixture(scope="module", params=FAMILIES)
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("tracing")
    recipe = write_recipe(folder)
    text = recipe.read_text()
    if request.param == "bahdanau":
        text = text.replace('layers = 2\nheads = 2\nfeed_forward = 32\nnorm = "pre"\n', "")
    recipe.write_text(text.replace("[model]", f'[model]\nfamily = "{request.param}"'))
    assert heed("train", recipe, "training.steps=2", "--run", folder / "run") == 0
    made: Translator = load(folder / "run")
    return made


@pytest.fixture
def trace(translator: Translator) -> Trace:
    return trace_translation(translator.system, "w1 w2 w3", SearchConfig(), "w3 w4")


def test_every_map_has_a_token_for_each_row_and_column(trace: Trace) -> None:
    assert trace.source is not None and trace.maps
    sides = {"source": ["w1", "w2", "w3", "</s>"], "said": ["w3", "w4", "</s>"], "fed": ["<s>", "w3", "w4"]}
    for one in trace.maps:
        assert trace.queries(one) == sides["source" if one.kind.queries == "source" else "said"]
        keys = {"source": sides["source"], "target": sides["fed"], "both": sides["source"] + sides["fed"]}
        assert trace.keys(one) == keys[one.kind.keys]
        assert one.weights.shape[1:] == (len(trace.queries(one)), len(trace.keys(one)))


def test_without_a_target_it_is_of_the_tokens_that_the_search_found(translator: Translator) -> None:
    config = SearchConfig(beam=2)
    trace = trace_translation(translator.system, "w1 w2", config)
    best = next(iter(translator.translations(["w1 w2"], beam=2))).candidates[0]
    assert (trace.target.text, trace.target.ids) == (best.text, best.tokens)


def test_views_are_of_the_same_pass(translator: Translator, trace: Trace) -> None:
    views = views_of(translator.system, trace)
    assert trace.source is not None
    pair = collate_one(translator.system, trace.source.ids, trace.target.ids)
    for one, norms, weighed in zip(trace.maps, views.norms, attention_norms(translator.model, *pair), strict=True):
        assert_close(one.weights * norms, weighed.weighted.weights)
    for rolled in views.rollout:
        assert_close(rolled.weights.sum(-1), torch.ones_like(rolled.weights[..., 0]))
    (last,) = [one for one in attention_maps(translator.model, *pair) if one.kind.queries == "target" != one.kind.keys][-1:]
    expected = merge_into_words(last.weights[0][:2, :3], [0, 1, 2], [0, 1])
    assert_close(views.words[last.layer][0], expected)


def test_a_text_that_is_only_read_looks_at_itself(translator: Translator) -> None:
    if translator.run.model.family != "gpt":
        pytest.skip("it needs a source")
    trace = trace_text(translator.system, "w1 w2")
    assert trace.source is None and len(trace.maps) == 2
    assert trace.queries(trace.maps[0]) == ["w1", "w2", "…"] and trace.keys(trace.maps[0]) == ["</s>", "w1", "w2"]
    assert_close(trace.maps[0].weights[:, 0], torch.tensor([[1.0, 0.0, 0.0]] * 2))
    assert views_of(translator.system, trace).words == {}


def test_an_empty_sentence_has_maps_and_no_words(translator: Translator) -> None:
    trace = trace_translation(translator.system, "", SearchConfig())
    assert trace.target.ids == [] and trace.maps
    assert views_of(translator.system, trace).words == {}


def test_names_that_do_not_fit_are_numbers_and_a_mark_that_all_bear_is_left_out() -> None:
    assert names_or_numbers(["a", "b"], 2) == ["a", "b"] and names_or_numbers(["a", "b"], 3) == ["#0", "#1", "#2"]
    whole, cut, bare = (Tokens("", [], pieces, []) for pieces in (["▁a", "▁b"], ["▁a", "b"], ["▁"]))
    assert Trace(whole, whole, "<s>", "</s>", []).source_tokens == ["a", "b", "</s>"]
    assert Trace(None, whole, "<s>", "</s>", []).target_tokens == ["a", "b"]
    for strange in (cut, bare):
        mixed = Trace(strange, whole, "<s>", "</s>", [])
        assert (mixed.source_tokens, mixed.target_tokens) == ([*strange.pieces, "</s>"], ["▁a", "▁b"]), (
            "both sides are marked, or none"
        )
