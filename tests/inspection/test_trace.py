"""Traces: attention weights of the generated output, with the tokens of queries and keys."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from tiny import forward_of
from torch import nn
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.data.gold import SentencePair
from heedful.errors import CheckpointError
from heedful.inspection.measures.alignment_heads import Aligner, AlignmentHead, Models, align
from heedful.inspection.measures.attention_maps import attention_maps
from heedful.inspection.measures.attention_norms import attention_norms
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.trace import Trace, names_or_numbers, trace_example, views_of
from heedful.runs.load import load
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import EncodedExample, Outputs, Tokens
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.system import collate_one
from heedful.tasks.translation.predictor import Translator

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
    return Translator.of(load(folder / "run"))


@pytest.fixture
def trace(translator: Translator) -> Trace:
    return trace_example(translator, translator.encode_example("w1 w2 w3", "w3 w4"))


def test_every_row_and_column_has_a_token(trace: Trace) -> None:
    assert trace.example.source is not None and trace.maps
    sides = {"source": ["w1", "w2", "w3", "</s>"], "outputs": ["w3", "w4", "</s>"], "inputs": ["<s>", "w3", "w4"]}
    for one in trace.maps:
        assert trace.queries(one) == sides["source" if one.kind.queries == "source" else "outputs"]
        keys = {"source": sides["source"], "target": sides["inputs"], "both": sides["source"] + sides["inputs"]}
        assert trace.keys(one) == keys[one.kind.keys]
        assert one.weights.shape[1:] == (len(trace.queries(one)), len(trace.keys(one)))


def test_without_a_target_the_trace_is_of_the_search_output(translator: Translator) -> None:
    example = translator.encode_example("w1 w2", config=SearchConfig(beam=2, max_extra=3))
    best = next(iter(translator.translations(["w1 w2"], beam=2))).candidates[0]
    assert (example.target.text, example.target.ids) == (best.text, best.tokens)


def test_views_are_of_the_same_pass(translator: Translator, trace: Trace) -> None:
    views, example = views_of(translator, trace), trace.example
    assert example.source is not None
    forward = forward_of(*collate_one(translator.system, example.source.ids, example.target.ids))
    for one, norms, expected_norms in zip(trace.maps, views.norms, attention_norms(translator.model, forward), strict=True):
        assert_close(one.weights * norms, expected_norms.weighted.weights)
    for rolled in views.rollout:
        assert_close(rolled.weights.sum(-1), torch.ones_like(rolled.weights[..., 0]))
    (last,) = [one for one in attention_maps(translator.model, forward) if one.kind.queries == "target" != one.kind.keys][-1:]
    expected = merge_into_words(last.weights[0][:2, :3], [0, 1, 2], [0, 1])
    assert_close(views.words[last.layer][0], expected)


def test_a_text_without_a_source_has_causal_self_attention(translator: Translator) -> None:
    if translator.run.model.family != "gpt":
        pytest.skip("it needs a source")
    generator = TextGenerator(translator.run, translator.system, translator.checkpoint)
    trace = trace_example(generator, generator.encode_example("w1 w2"))
    assert trace.example.source is None and len(trace.maps) == 2
    assert trace.queries(trace.maps[0]) == ["w1", "w2", "…"] and trace.keys(trace.maps[0]) == ["</s>", "w1", "w2"]
    assert_close(trace.maps[0].weights[:, 0], torch.tensor([[1.0, 0.0, 0.0]] * 2))
    assert views_of(generator, trace).words == {}


def test_an_empty_translation_has_weights_but_no_word_weights(translator: Translator, trace: Trace) -> None:
    empty = Tokens("", [], [], [])
    without = replace(trace.example, target=empty, target_in=trace.example.target_in[:, :1])
    shorter = trace_example(translator, without)
    assert shorter.maps and views_of(translator, shorter).words == {}


def example_of(source: Tokens | None, target: Tokens) -> EncodedExample:
    none = torch.zeros(1, 0, dtype=torch.long)
    outputs = Outputs(none[0], [], none[0], lambda *_: none, lambda ids: [])
    return EncodedExample(source, target, "<s>", "</s>", none, none, outputs)


def test_tokens_fall_back_to_numbers_and_a_common_word_marker_is_removed() -> None:
    assert names_or_numbers(["a", "b"], 2) == ["a", "b"] and names_or_numbers(["a", "b"], 3) == ["#0", "#1", "#2"]
    words, split, bare = (Tokens("", [], pieces, []) for pieces in (["▁a", "▁b"], ["▁a", "b"], ["▁"]))
    assert example_of(words, words).source_tokens == ["a", "b", "</s>"]
    assert example_of(None, words).target_tokens == ["a", "b"]
    for unusual in (split, bare):
        mixed = example_of(unusual, words)
        assert (mixed.source_tokens, mixed.target_tokens) == ([*unusual.pieces, "</s>"], ["▁a", "▁b"]), (
            "both sides keep the marker, or none"
        )


def test_weights_that_are_not_finite_are_an_error_of_the_checkpoint(translator: Translator) -> None:
    damaged = deepcopy(translator.model)
    assert isinstance(damaged, nn.Module)
    with torch.no_grad():
        for parameter in damaged.parameters():
            parameter.fill_(torch.nan)
    system = replace(translator.system, models=[damaged])
    broken = Translator(translator.run, system, translator.checkpoint)
    with pytest.raises(CheckpointError, match=r"not finite at hook point .*; the weights of .*step-2 are damaged"):
        trace_example(broken, broken.encode_example("w1 w2 w3", "w3 w4"))
    with pytest.raises(CheckpointError, match="not finite at pair 1"):
        list(align(Models(system), [SentencePair("w1 w2", "w2 w1")], Aligner((AlignmentHead(0, 0),))))
