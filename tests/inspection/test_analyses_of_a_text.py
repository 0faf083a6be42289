"""Analyses of one text, for every task: their numbers equal those of predictions and scores, and their pages show them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from workshop import heed, write_recipe

import heedful
from heedful import inspection
from heedful.errors import ConfigError
from heedful.inspection.analyses.ablate import AblationResult
from heedful.inspection.analyses.example_text import ExampleText
from heedful.inspection.drawing.figure import Label
from heedful.inspection.explaining.trained import CONTINUATION
from heedful.inspection.explaining.tree import prefix_of
from heedful.inspection.measures.interventions import target_log_probabilities
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.saliency import NOTE
from heedful.inspection.result import Result

LINE, OTHER, TARGET = "w1 w2 w3 w4", "w1 w9 w3 w4", "w4 w3 w2 w1"
TEXT = "a dog sees the cat"


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> heedful.Translator:
    return heedful.Translator.load(tiny_runs["translation"])


@pytest.fixture(scope="module")
def generator(tiny_runs: dict[str, Path]) -> heedful.TextGenerator:
    return heedful.TextGenerator.load(tiny_runs["language"])


@pytest.fixture(scope="module")
def classifier(tiny_runs: dict[str, Path]) -> heedful.Classifier:
    return heedful.Classifier.load(tiny_runs["classification"])


# What a task contributes


PATCHES, NODES = "[CLS], then patches of the image", "nodes of the graph"


@pytest.mark.parametrize(
    ("task", "names", "rows"),
    [
        ("image_classification", ["image", "label"], PATCHES),
        ("node_classification", ["graph", "label"], NODES),
        ("captioning", ["image", "caption"], "tokens of the caption, at the step that predicts them"),
        ("decisions", ["history", "label"], "tokens of the history"),
        ("series_classification", ["series", "label"], "steps of the series"),
        ("forecasting", ["table"], "patches of the table"),
        ("embedding", ["text", "label"], "tokens of the text, from <s> to </s>"),
    ],
)
def test_captions_name_the_kind_of_the_input_and_of_the_output(
    tiny_runs: dict[str, Path], task: str, names: list[str], rows: str
) -> None:
    predictor = heedful.load(tiny_runs[task])
    text = TEXT if predictor.reads_text else next(iter(predictor.example_inputs("valid"))).text
    result = inspection.attention(predictor, text, kind="cross" if predictor.has_source else None)
    assert [one.partition(":")[0] for one in result.example.captions()] == names
    written = " ".join(mark.text for mark in result.figure().marks if isinstance(mark, Label))
    assert rows in written and "None" not in written


def test_log_probabilities_of_the_outputs_are_the_scores_of_the_task(
    translator: heedful.Translator, generator: heedful.TextGenerator, classifier: heedful.Classifier
) -> None:
    (scored,) = translator.score([LINE], [TARGET])
    assert scored is not None
    logs = target_log_probabilities(translator, translator.encode_example(LINE, TARGET))
    assert float(logs.sum()) == pytest.approx(scored.log_probability, abs=1e-4)
    logs = target_log_probabilities(generator, generator.encode_example(TEXT))
    (expected,) = generator.score("", [TEXT])
    assert float(logs[:-1].sum()) == pytest.approx(expected, abs=1e-4)  # without the end of the line
    for label, probability in classifier.predict_proba([TEXT])[0].items():
        (log,) = target_log_probabilities(classifier, classifier.encode_example(TEXT, label))
        assert float(log.exp()) == pytest.approx(probability, abs=1e-5)


def test_a_classifier_is_analyzed_between_start_and_extract_token(classifier: heedful.Classifier) -> None:
    example, specials = classifier.encode_example(TEXT), classifier.system.target_tokenizer.specials
    assert example.target_in.tolist() == [[specials.start, *example.target.ids, specials.pad]]
    assert example.outputs.pieces == [classifier.predict(TEXT)] and example.outputs.steps.tolist() == [6]
    attention = inspection.attention(classifier, TEXT)
    for one in attention.trace.maps:
        assert attention.trace.queries(one) == attention.trace.keys(one) == example.inputs
    assert len(example.inputs) == 7


def test_the_attention_of_a_classifier_is_that_of_its_language_model(classifier: heedful.Classifier) -> None:
    example = classifier.encode_example(TEXT)
    with heedful.record(classifier.classifier.body, "*.weights") as recorded, torch.inference_mode():
        classifier.classifier.eval().batch_logits(example.source_ids, example.target_in)
    maps = inspection.attention(classifier, TEXT).trace.maps
    assert maps and all(torch.equal(one.weights, recorded[one.name][0]) for one in maps)


# The analyses


def test_the_last_layer_of_the_lens_is_the_models_prediction(
    translator: heedful.Translator, classifier: heedful.Classifier
) -> None:
    result = inspection.lens(translator, LINE, target="w4 w3 w2")
    last = result.layers[-1]
    assert last.predicted == result.final and set(last.final_rank) == {1}
    assert len(result.layers) == 2 and len(result.tokens) == 4
    assert f"{last.predicted[1]} {last.probability[1]:.2f}" in result.text()
    result = inspection.lens(classifier, TEXT)
    (probabilities,) = classifier.predict_proba([TEXT])
    assert result.final == [max(probabilities, key=lambda label: probabilities[label])] == result.tokens
    assert result.layers[-1].probability == pytest.approx([max(probabilities.values())], abs=1e-5)


def test_a_family_with_one_decoder_output_has_one_column_in_the_lens(tmp_path: Path) -> None:
    recurrent = 'model={family="bahdanau", dim=8, embedding=8, readout=8}'
    assert heed("train", write_recipe(tmp_path), recurrent, "training.steps=2", "--run", tmp_path / "run") == 0
    result = inspection.lens(heedful.load(tmp_path / "run"), LINE, "w4 w3")
    assert [layer.name for layer in result.layers] == ["decoder.out"]


def test_alternatives_of_a_label_are_the_probabilities_of_the_classifier(classifier: heedful.Classifier) -> None:
    result = inspection.alternatives(classifier, TEXT)
    assert {one.piece: one.probability for one in result.alternatives} == pytest.approx(classifier.predict_proba([TEXT])[0])
    assert [one.chosen for one in result.alternatives] == [True, False]


def test_a_forced_token_stands_in_the_translation(translator: heedful.Translator) -> None:
    result = inspection.alternatives(translator, LINE, 1, target=TARGET, instead="w7")
    assert result.instead is not None and result.instead.translation.split()[:2] == ["w4", "w7"]
    assert len(result.alternatives) == 20
    assert f"with '▁w7' forced: {result.instead.translation}" in result.text()


def test_weights_between_tokens_merge_into_the_alignment_of_words(translator: heedful.Translator) -> None:
    result = inspection.attention(translator, LINE, TARGET)
    tokens = result.to_dict()["alignment"]["tokens"]
    merged = merge_into_words(torch.tensor(tokens["weights"]), tokens["source_words"], tokens["target_words"])
    assert result.alignment is not None and merged.shape == (4, 4)
    assert_close(merged, result.alignment, atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", [{"method": "greedy"}, {"method": "beam", "beam": 3}], ids=str)
def test_the_search_tree_of_a_language_model_returns_the_generated_text(
    generator: heedful.TextGenerator, options: dict[str, Any]
) -> None:
    config = generator.search_config_from(options)
    (stage,) = inspection.explain(generator, "the cat", about="tree", config=config).stages
    assert stage.tree is not None and all(check.holds for check in stage.checks)
    (generated,) = generator.predictions(["the cat"], length=CONTINUATION, **options)
    best = stage.tree.nodes[stage.tree.best[0]]
    assert best.length == CONTINUATION + 1  # and the padding token at the end
    path = prefix_of(stage.tree.nodes, stage.tree.best[0])
    assert path[1:-1] == generated.completions[0].tokens


def test_the_search_tree_of_a_chat_model_returns_the_reply(tiny_runs: dict[str, Path]) -> None:
    bot = heedful.ChatBot.load(tiny_runs["chat"])
    explanation = inspection.explain(bot, "the dog\tdog runs", about="tree")
    assert explanation.title == "The search for a reply to 'the dog\tdog runs'"
    assert explanation.stages[0].matrices[0].cells[0][0] == bot.predict("the dog\tdog runs")


def test_integrated_gradients_sum_to_the_change_of_the_log_probability(classifier: heedful.Classifier) -> None:
    """From zero embeddings to those of the text."""
    result = inspection.saliency(classifier, TEXT, steps=300)
    example = classifier.encode_example(TEXT)
    log = target_log_probabilities(classifier, example)
    table = classifier.classifier.embeddings()["target"]
    handle = table.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
    zero = target_log_probabilities(classifier, example)
    handle.remove()
    assert not torch.allclose(log, zero, atol=1e-3)
    assert_close(result.values.sum(-1), log - zero, atol=5e-3, rtol=0.05)


def test_patching_a_source_shows_what_each_position_recovers(translator: heedful.Translator) -> None:
    result = inspection.patch(translator, LINE, OTHER, target=TARGET)
    assert len(result.places) == 4 and "encoder.0.out" in result.text()
    (scored,) = translator.score([LINE], [TARGET])
    assert scored is not None and float(result.log_probability.sum()) == pytest.approx(scored.log_probability, abs=1e-4)


def test_patching_the_last_position_of_a_classifier_recovers_everything(classifier: heedful.Classifier) -> None:
    """The label is predicted from the last position of the last layer."""
    result = inspection.patch(classifier, TEXT, "the cat sees the dog")
    last = result.places[-1].change
    assert_close(last[-1], result.log_probability - result.other_log_probability, atol=1e-5, rtol=1e-4)
    assert_close(last[:-1], torch.zeros_like(last[:-1]))


@pytest.mark.parametrize(("change", "shown"), [(0.005, "+0.005"), (-0.25, "-0.250")])
def test_the_effect_of_removing_a_head_is_shown_with_its_sign(change: float, shown: str) -> None:
    example = ExampleText("w1", ["w1"], "", [], ["</s>"], ["</s>"], ["w1", "</s>"])
    text = AblationResult(example, ["cross.0.0"], "w1", -1.0, change).text()
    assert f"log p of the target above: {shown}" in text


def test_ablating_every_head_of_a_language_model_changes_the_log_probability_of_the_text(
    generator: heedful.TextGenerator,
) -> None:
    result = inspection.ablate(generator, TEXT, ["within.0.0", "within.0.1"])
    assert result.translation is None and result.change != 0 and math.isfinite(result.change)
    with pytest.raises(ConfigError, match="given no head"):
        inspection.ablate(generator, TEXT, [])


# The pages


def results(translator: heedful.Translator) -> list[Result]:
    return [
        inspection.lens(translator, LINE, TARGET),
        inspection.saliency(translator, LINE, TARGET),
        inspection.patch(translator, LINE, OTHER, target=TARGET),
    ]


def test_a_page_shows_the_figures_that_are_drawn(translator: heedful.Translator) -> None:
    for result in results(translator):
        drawn, page = tips_of(result.svg()), tips_of(result.html())
        assert drawn and page == drawn
    assert NOTE.replace("&", "&amp;") in inspection.saliency(translator, LINE, TARGET).html()


def test_pages_and_svg_figures_require_no_matplotlib(
    translator: heedful.Translator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for result in results(translator):
        assert result.html() and result.save(tmp_path / "figure.svg").exists()
        main = result.html().split("<template")[1].split("</template>")[0]
        assert "<pre" not in main and ("<svg" in main or "<table" in main)  # not the text of a terminal
        with pytest.raises(ConfigError, match="require matplotlib"):
            result.save(tmp_path / "figure.png")


def tips_of(markup: str) -> list[str]:
    return [part.split("</title>")[0] for part in markup.split("<title>")[1:] if "→" in part.split("</title>")[0]]


def test_numbers_of_the_pages_are_those_of_the_results(translator: heedful.Translator) -> None:
    lens, saliency, patched = results(translator)
    expected: list[list[float]] = [
        [layer["probability"][at] for at in range(5) for layer in lens.to_dict()["layers"]],
        numbers(saliency.to_dict()["saliency"], "source", "source_bound", "attention"),
        [sum(tokens) for place in patched.to_dict()["patched"]["places"] for tokens in place["change"]],
    ]
    for result, values in zip((lens, saliency, patched), expected, strict=True):
        assert [float(tip.rpartition(": ")[2]) for tip in tips_of(result.html())] == pytest.approx(values, abs=6e-5)


def numbers(data: dict[str, Any], *names: str) -> list[float]:
    return [value for name in names for row in data[name] for value in row]
