"""Explanations of a trained model: they use its own numbers; unsupported requests raise one-sentence errors."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import FAMILIES, tiny_config
from workshop import WORDS

from heedful.errors import ConfigError
from heedful.inspection.explaining import html, text, trained, training_step
from heedful.inspection.explaining.stages import Explanation, Stage
from heedful.inspection.explaining.trained import HeadChoice, batch, choose_query, find_token
from heedful.models import MODELS
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import TokenLoss
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.system import System
from heedful.tasks.translation.config import TranslationConfig
from heedful.tasks.translation.evaluate import score_pairs
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

EVIL = "<img src=x onerror=alert(1)>"
SENTENCE = "w3 w1 w4"


CONFIG = SearchConfig(max_extra=3)


def system_of(family: str, **changes: Any) -> System:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), [" ".join([*WORDS, EVIL])])
    torch.manual_seed(2)
    model = MODELS[family](tiny_config(family, changes), len(tokenizer), len(tokenizer))
    return System([model.eval()], tokenizer, tokenizer, torch.device("cpu"))


@pytest.fixture(scope="module")
def system() -> System:
    return system_of("transformer")


def translator_of(system: System, task: TranslationConfig | None = None) -> Translator:
    run: Any = SimpleNamespace(task=task or TranslationConfig(), search=CONFIG, model=SimpleNamespace(family="tiny"))
    return Translator(run, system, Path("run/checkpoints/step-1"))


def explain_head(
    system: System, source: str, choice: HeadChoice, config: SearchConfig, target: str | None = None
) -> Explanation:
    translator = translator_of(system)
    return trained.explain_head(translator, translator.encode_example(source, target, None if target else config), choice)


def explain_step(system: System, source: str, loss: TokenLoss, config: SearchConfig, target: str | None = None) -> Explanation:
    translator = translator_of(system)
    return training_step.explain_step(translator, translator.encode_example(source, target, None if target else config), loss)


def explain_search(system: System, source: str, config: SearchConfig) -> Explanation:
    return trained.explain_search(translator_of(system), source, config)


def explain_batch(system: System, sources: list[str], config: SearchConfig, targets: list[str]) -> Explanation:
    return trained.explain_batch(translator_of(system), sources, config, targets)


def failing(explanation: Explanation) -> list[Any]:
    checks = [check for stage in explanation.stages for check in stage.checks]
    assert checks
    return [check for check in checks if not check.holds]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_of_every_family_with_attention(family: str) -> None:
    system = system_of(family)
    if not system.models[0].attentions():
        pytest.skip("the model has no attention")
    try:
        explanation = explain_head(system, SENTENCE, HeadChoice(), CONFIG, "w7 w2")
    except ConfigError as error:
        assert "has no stages to show" in str(error)  # tested in test_explaining_heads.py
        return
    assert failing(explanation) == []
    softmax = next(stage for stage in explanation.stages if stage.title == "Softmax")
    assert sum(float(cell or 0) for cell in softmax.matrices[0].cells[0]) == pytest.approx(1, abs=1e-5)
    assert max(map(text.display_width, text.render(explanation).splitlines())) <= 100 and html.render(explanation)


def test_every_kind_layer_head_and_token_can_be_chosen(system: System) -> None:
    titles = set()
    for kind, token in (("encoder", "w1"), ("decoder", "w2"), ("cross", "1"), ("cross", "</s>")):
        explanation = explain_head(system, SENTENCE, HeadChoice(kind, 1, 1, token), CONFIG, "w7 w2")
        assert failing(explanation) == []
        titles.add((explanation.title, explanation.stages[2].matrices[0].rows[0].strip("▁")))
    assert titles == {
        ("Encoder self-attention, layer 1, head 1", "w1"),
        ("Decoder self-attention, layer 1, head 1", "w2"),
        ("Cross-attention, layer 1, head 1", "w2"),
        ("Cross-attention, layer 1, head 1", "</s>"),
    }


def test_the_default_query_is_a_central_word_that_attends_to_a_word() -> None:
    queries, keys, specials = ["a", "b", "c", "d", "</s>"], ["<s>", "a", "b", "c", "d"], {"<s>", "</s>"}
    largest = torch.tensor([0, 2, 0, 0, 3])  # the key with the largest weight
    assert choose_query(queries, keys, torch.eye(5)[largest], specials) == 1
    assert choose_query(queries, keys, torch.eye(5)[torch.tensor([1, 0, 3, 1, 1])], specials) == 2
    assert (
        choose_query(queries, keys, torch.eye(5)[torch.zeros(5, dtype=torch.long)], specials) == 2
    )  # all attend to a special token
    assert choose_query(["</s>"], keys, torch.eye(5)[:1], specials) == 0  # without words


def test_a_number_is_a_token_if_there_is_one_and_with_a_mark_an_index() -> None:
    tokens = ["▁2", "▁1", "▁1", "</s>"]
    assert [find_token(tokens, given) for given in ("1", "2", "3", "#1", "#2")] == [1, 0, 3, 1, 2]


def test_the_text_names_the_key_with_the_largest_weight(system: System) -> None:
    for family in ("transformer", "luong"):
        explanation = explain_head(system_of(family), SENTENCE, HeadChoice("cross"), CONFIG, "w7 w2 w5")
        softmax = next(stage for stage in explanation.stages if stage.title == "Softmax")
        row = softmax.matrices[0]
        assert row.rows[0].strip("▁") in ("w7", "w2", "w5")
        weight, key = max((float(cell or 0), key) for cell, key in zip(row.cells[0], row.columns, strict=True))
        assert f"most to '{key}' ({weight:.4f})" in softmax.why


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (HeadChoice("crss"), "unknown kind of attention 'crss'; expected one of: encoder, decoder, cross"),
        (HeadChoice("cross", layer=2), r"layer: given 2, expected one of: 0, 1 \(cross attention\)"),
        (HeadChoice("cross", head=2), r"head: given 2, expected 0 to 1"),
        (HeadChoice("cross", token="w9"), "token: given 'w9', expected one of: .*w7 .*w2 </s>; or its index, 0 to 2"),
        (HeadChoice("cross", token="3"), "token: given '3'"),
        (HeadChoice("cross", token="#3"), "token: given '#3'"),
    ],
)
def test_a_wrong_choice_raises_an_error_that_lists_the_alternatives(system: System, choice: HeadChoice, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        explain_head(system, SENTENCE, choice, CONFIG, "w7 w2")


def test_a_model_without_attention_raises_an_error_with_a_hint() -> None:
    system = system_of("sutskever")
    with pytest.raises(ConfigError, match="has no attention") as raised:
        explain_head(system, SENTENCE, HeadChoice(), CONFIG, "w7 w2")
    assert raised.value.hint == "use --step, --tree or --batch, which explain any model"
    assert failing(explain_search(system, SENTENCE, CONFIG)) == []
    assert failing(explain_step(system, SENTENCE, TokenLoss(0.1, "all"), CONFIG)) == []


def test_a_head_of_a_language_model() -> None:
    run: Any = SimpleNamespace()
    generator = TextGenerator(run, system_of("gpt", position="rotary"), Path("run/checkpoints/step-1"))
    explanation = trained.explain_head(generator, generator.encode_example(SENTENCE), HeadChoice())
    assert failing(explanation) == []
    assert explanation.title == "Self-attention, layer 0, head 0"


@pytest.mark.parametrize("share", ["all", "others", "words"])
def test_a_training_step_has_the_training_loss(system: System, share: str) -> None:
    explanation = explain_step(system, SENTENCE, TokenLoss(0.1, share), CONFIG, "w7 w2 w2")
    assert failing(explanation) == []
    stages = {stage.title: stage for stage in explanation.stages}
    total, mean, perplexity = stages["Loss"].matrices[1].cells[0]
    (scored,) = score_pairs(system, [SENTENCE], ["w7 w2 w2"])
    assert scored is not None and total == pytest.approx(-scored.log_probability, abs=1e-5)
    assert mean == pytest.approx(-scored.log_probability / 4, abs=1e-5) and perplexity == pytest.approx(
        math.exp(float(mean or 0))
    )
    assert [row[1] for row in stages["Decoder inputs and targets"].matrices[0].cells][-1] == "</s>"


def test_a_small_step_matches_the_first_order_estimate_and_leaves_the_model_unchanged(system: System) -> None:
    before = [weight.clone() for weight in system.models[0].parameters()]
    explanation = explain_step(system, SENTENCE, TokenLoss(0.0, "all"), CONFIG, "w7 w2")
    rows = [[float(cell) for cell in row] for row in explanation.stages[-1].matrices[0].cells]  # type: ignore[arg-type]
    (_, first, _), (_, tiny_step, estimate), *_ = rows
    assert tiny_step < first
    assert first - tiny_step == pytest.approx(first - estimate, rel=0.05)
    after = list(system.models[0].parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(weight.grad is None for weight in after)


@pytest.mark.parametrize("share", ["all", "others", "words"])
def test_a_step_follows_the_gradient_of_the_smoothed_loss(system: System, share: str) -> None:
    tokenizer, epsilon = system.target_tokenizer, 0.2
    pad, start, end = tokenizer.specials.pad, tokenizer.specials.start, tokenizer.specials.end
    target, vocab = tokenizer.encode("w7 w2"), len(tokenizer)
    source = torch.tensor([[*tokenizer.encode(SENTENCE), end]])
    model: Any = copy.deepcopy(system.models[0])

    def smoothed() -> torch.Tensor:
        hidden = model.step(torch.tensor([[start, *target]]), model.start(source, None, room=0)).hidden
        logs, total = model.project(hidden)[0].log_softmax(-1), torch.zeros(())
        for log, true in zip(logs, [*target, end], strict=True):
            excluded = {true} if share == "others" else {true, pad}
            others = [word for word in range(vocab) if share == "all" or word not in excluded]
            total = total - (1 - epsilon) * log[true] - epsilon / len(others) * log[others].sum()
        return total / (len(target) + 1)

    weights = list(model.parameters())
    loss = smoothed()
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))
    stage = explain_step(system, SENTENCE, TokenLoss(epsilon, share), CONFIG, "w7 w2").stages[-1]
    assert stage.matrices[1].cells[0][0] == pytest.approx(norm, rel=1e-4)
    assert stage.matrices[0].cells[0] == pytest.approx([0, loss.item(), loss.item()], rel=1e-5)
    assert "the gradient of the smoothed loss, ε = 0.2" in stage.why
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= 0.01 * (0 if gradient is None else gradient)
    expected = [0.01, smoothed().item(), loss.item() - 0.01 * norm**2]
    assert stage.matrices[0].cells[-1] == pytest.approx(expected, rel=1e-5)
    plain = explain_step(system, SENTENCE, TokenLoss(0.0, share), CONFIG, "w7 w2").stages[-1]
    assert plain.matrices[1].cells[0][0] != pytest.approx(norm, rel=1e-2) and "the gradient of the loss (" in plain.why


def test_the_losses_of_a_step_have_the_same_number_of_digits(system: System) -> None:
    table = explain_step(system, SENTENCE, TokenLoss(0.1, "all"), CONFIG, "w7 w2").stages[-1].matrices[0]
    written = [text.format_cell(cell, table.form) for row in table.cells for cell in row[1:]]
    assert len(written) == 8 and {len(number.partition(".")[2]) for number in written} == {6}


@pytest.mark.parametrize("options", [{"method": "greedy"}, {"beam": 4, "n_best": 3}, {"beam": 2, "min_length": 3}])
def test_the_search_tree_returns_the_translations(system: System, options: dict[str, Any]) -> None:
    config = SearchConfig(max_extra=3, **options)
    explanation = explain_search(system, SENTENCE, config)
    assert failing(explanation) == []
    (translation,) = translate(system, [SENTENCE], config)
    assert max(map(text.display_width, text.render(explanation).splitlines())) <= 100
    rows = explanation.stages[0].matrices[0].cells
    assert [row[0] for row in rows] == [one.text for one in translation.candidates]
    assert [row[2] for row in rows] == pytest.approx([one.score for one in translation.candidates], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({"length_penalty": 0.35}, "score = frac(log P, ((5 + n) / 6)^alpha) , alpha = 0.35"),
        ({"penalty": "power", "length_penalty": 1.0}, "score = frac(log P, n^alpha) , alpha = 1"),
        ({"length_penalty": 0.0}, "score = log P"),
        ({"method": "greedy"}, "score = log P"),
    ],
)
def test_the_formula_of_the_score_has_its_length_penalty(system: System, options: dict[str, Any], formula: str) -> None:
    explanation = explain_search(system, SENTENCE, SearchConfig(max_extra=3, **options))
    assert explanation.stages[0].formula.endswith(formula)
    assert max(map(text.display_width, text.render(explanation).splitlines())) <= 100


def test_an_ensemble_averages_probabilities(system: System) -> None:
    other = system_of("transformer", norm="pre")
    both = System([*system.models, *other.models], system.source_tokenizer, system.target_tokenizer, system.device)
    assert failing(explain_search(both, SENTENCE, SearchConfig(max_extra=3))) == []


def test_searching_an_empty_sentence_raises_an_error(system: System) -> None:
    with pytest.raises(ConfigError, match="an empty text"):
        explain_search(system, "", CONFIG)


def test_a_batch_is_padded_with_the_padding_id_of_the_vocabulary() -> None:
    stages = {stage.title: stage for stage in batch().stages}
    source, target_in, target_out = (one.cells for one in stages["Pad"].matrices)
    assert source == [[42, 23, 16, 31, 99], [42, 1, 16, 64, 99], [23, 99, 3, 3, 3]]
    assert target_in == [[0, 5, 8, 12, 20], [0, 1, 1, 12, 1], [0, 8, 3, 3, 3]]
    assert [row[:-1] for row in target_out[:2]] == [row[1:] for row in target_in[:2]]
    real = [[True] * 5, [True] * 5, [True, True, False, False, False]]
    assert [one.cells for one in stages["Build the masks"].matrices] == [real, real]
    assumed_zero, late, _ = stages["Build the masks"].mistakes
    assert assumed_zero.matrices[1].cells[0] == [False, True, True, True, True] and late.matrices[0].cells == [[5]] * 3


def test_a_batch_of_a_run_uses_its_tokenizers(system: System) -> None:
    explanation = explain_batch(system, [SENTENCE, "w1"], CONFIG, ["w2", "w5 w6"])
    stages = {stage.title: stage for stage in explanation.stages}
    pad, end = system.source_tokenizer.specials.pad, system.source_tokenizer.specials.end
    source = stages["Pad"].matrices[0].cells
    assert source == [[*system.source_tokenizer.encode(SENTENCE), end], [*system.source_tokenizer.encode("w1"), end, pad, pad]]
    with pytest.raises(ConfigError, match="1 targets were given for 2 sentences"):
        explain_batch(system, [SENTENCE, "w1"], CONFIG, ["w2"])


def test_tokens_that_contain_markup_are_escaped(system: System) -> None:
    for explanation in (
        explain_head(system, f"w1 {EVIL}", HeadChoice("encoder"), CONFIG, f"w2 {EVIL}"),
        explain_step(system, f"w1 {EVIL}", TokenLoss(0.1, "all"), CONFIG, EVIL),
        explain_search(system, EVIL, CONFIG),
    ):
        page = html.render(explanation)
        assert "onerror" in page and "<img" not in page


def test_the_tolerance_of_a_step_is_relative_to_its_logits(system: System) -> None:
    confident = copy.deepcopy(system)
    with torch.no_grad():
        for weight in confident.models[0].parameters():
            weight.mul_(6)
    explanation = explain_step(confident, SENTENCE, TokenLoss(0.1, "all"), CONFIG)
    checks = [check for stage in explanation.stages for check in stage.checks]
    assert [check.size_of for check in checks] == ["logit", "logit"] and all(check.size > 20 for check in checks)
    assert failing(explanation) == []


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (
            {"r_drop": 5.0},
            "Training also adds 2.5 x the symmetric KL divergence between two passes with dropout (R-Drop); this is omitted",
        ),
        ({"guided_alignment": 0.3}, "Training also adds 0.3 x the guided alignment loss; this is omitted here."),
        (
            {"sequence": {"method": "risk"}},
            "multiplies it by 0 and adds a sequence-level loss on sentences generated by the model",
        ),
    ],
)
def test_a_step_names_the_omitted_terms_of_the_loss(system: System, options: dict[str, Any], note: str) -> None:
    def smoothed(config: TranslationConfig) -> list[Stage]:
        explanation = explain_step(system, SENTENCE, translator_of(system, config).token_loss(), CONFIG, "w7 w2")
        return [stage for stage in explanation.stages if stage.title in ("Label smoothing", "One gradient step")]

    (plain, down), (more, further) = smoothed(TranslationConfig()), smoothed(TranslationConfig.model_validate(options))
    assert "Training" not in plain.why + down.why and plain.checks[0].what.startswith("the training loss")
    assert note in more.why and note in further.why
    assert more.checks[0].what.startswith("the token-level part of the training loss")


def test_a_step_names_the_auxiliary_losses_of_the_model() -> None:
    explanation = explain_step(system_of("gpt", source_loss=0.5), SENTENCE, TokenLoss(0.1, "all"), CONFIG, "w7 w2")
    assert "Training also adds the model's auxiliary loss 'source'; this is omitted here." in explanation.stages[3].why
