"""A trained model explained: by its own numbers, and with one sentence where it cannot be."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tiny import SPEAKING, tiny_config
from workshop import WORDS

from heedful.errors import ConfigError
from heedful.inspection.explaining import html, text
from heedful.inspection.explaining.stages import Explanation, Stage
from heedful.models import MODELS
from heedful.search import SearchConfig
from heedful.studies.explain import HeadChoice, batch, explain_batch, explain_head, explain_head_alone, explain_search, telling
from heedful.studies.explain_step import Smoothing, explain_step, smoothing_of
from heedful.tasks.evaluate_translations import score_pairs
from heedful.tasks.translate import System, translate
from heedful.tasks.translation import TranslationConfig
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

EVIL = "<img src=x onerror=alert(1)>"
SENTENCE = "w3 w1 w4"


def system_of(family: str, **changes: Any) -> System:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), [" ".join([*WORDS, EVIL])])
    torch.manual_seed(2)
    model = MODELS[family](tiny_config(family, changes), len(tokenizer), len(tokenizer))
    return System([model.eval()], tokenizer, tokenizer, torch.device("cpu"))


@pytest.fixture(scope="module")
def system() -> System:
    return system_of("transformer")


def failing(explanation: Explanation) -> list[Any]:
    checks = [check for stage in explanation.stages for check in stage.checks]
    assert checks
    return [check for check in checks if not check.holds]


CONFIG = SearchConfig(max_extra=3)


@pytest.mark.parametrize("family", [name for name in SPEAKING if name not in ("sutskever", "bytenet")])
def test_a_head_of_every_family_that_attends(family: str) -> None:
    explanation = explain_head(system_of(family), SENTENCE, HeadChoice(), CONFIG, "w7 w2")
    assert failing(explanation) == []
    softmax = next(stage for stage in explanation.stages if stage.title == "Softmax")
    assert sum(float(cell or 0) for cell in softmax.matrices[0].cells[0]) == pytest.approx(1, abs=1e-5)
    assert max(map(text.wide, text.render(explanation).splitlines())) <= 100 and html.render(explanation)


def test_every_kind_layer_head_and_token_can_be_chosen(system: System) -> None:
    titles = set()
    for kind, token in (("encoder", "w1"), ("decoder", "w2"), ("cross", "1"), ("cross", "</s>")):
        explanation = explain_head(system, SENTENCE, HeadChoice(kind, 1, 1, token), CONFIG, "w7 w2")
        assert failing(explanation) == []
        titles.add((explanation.title, explanation.stages[2].matrices[0].rows[0].strip("▁")))
    assert titles == {
        ("How encoder attention, layer 1, head 1 looked", "w1"),
        ("How decoder attention, layer 1, head 1 looked", "w2"),
        ("How cross attention, layer 1, head 1 looked", "w2"),
        ("How cross attention, layer 1, head 1 looked", "</s>"),
    }


def test_unless_said_a_word_near_the_middle_is_shown_that_looks_at_a_word() -> None:
    queries, keys, marks = ["a", "b", "c", "d", "</s>"], ["<s>", "a", "b", "c", "d"], {"<s>", "</s>"}
    at = torch.tensor([0, 2, 0, 0, 3])  # where each looks most
    assert telling(queries, keys, torch.eye(5)[at], marks) == 1
    assert telling(queries, keys, torch.eye(5)[torch.tensor([1, 0, 3, 1, 1])], marks) == 2
    assert telling(queries, keys, torch.eye(5)[torch.zeros(5, dtype=torch.long)], marks) == 2  # all look at a mark
    assert telling(["</s>"], keys, torch.eye(5)[:1], marks) == 0  # there is no word


def test_who_is_looked_at_most_is_said_in_words(system: System) -> None:
    for family in ("transformer", "luong"):
        explanation = explain_head(system_of(family), SENTENCE, HeadChoice("cross"), CONFIG, "w7 w2 w5")
        softmax = next(stage for stage in explanation.stages if stage.title == "Softmax")
        row = softmax.matrices[0]
        assert row.rows[0].strip("▁") in ("w7", "w2", "w5")
        share, key = max((float(cell or 0), key) for cell, key in zip(row.cells[0], row.columns, strict=True))
        assert f"most from '{key}' ({share:.4f})" in softmax.why


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (HeadChoice("crss"), "unknown kind of attention 'crss'; expected one of: encoder, decoder, cross"),
        (HeadChoice("cross", layer=2), r"--layer: given 2, expected one of: 0, 1 \(cross attention\)"),
        (HeadChoice("cross", head=2), r"--head: given 2, expected 0 to 1"),
        (HeadChoice("cross", token="w9"), "--token: given 'w9', expected one of: .*w7 .*w2 </s>; or its number, 0 to 2"),
        (HeadChoice("cross", token="3"), "--token: given '3'"),
    ],
)
def test_a_wrong_choice_is_told_what_there_is(system: System, choice: HeadChoice, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        explain_head(system, SENTENCE, choice, CONFIG, "w7 w2")


def test_a_model_without_attention_says_what_can_be_explained() -> None:
    system = system_of("sutskever")
    with pytest.raises(ConfigError, match="does not attend") as refusal:
        explain_head(system, SENTENCE, HeadChoice(), CONFIG, "w7 w2")
    assert refusal.value.hint == "--step, --tree and --batch explain any model"
    assert failing(explain_search(system, SENTENCE, CONFIG)) == []
    assert failing(explain_step(system, SENTENCE, Smoothing(0.1, "all"), CONFIG)) == []


def test_a_language_model_is_explained_by_what_it_reads() -> None:
    explanation = explain_head_alone(system_of("gpt", position="rotary"), SENTENCE, HeadChoice())
    assert failing(explanation) == []
    assert explanation.title == "How within attention, layer 0, head 0 looked"


@pytest.mark.parametrize("share", ["all", "others", "words"])
def test_a_training_step_has_the_loss_of_training(system: System, share: str) -> None:
    explanation = explain_step(system, SENTENCE, Smoothing(0.1, share), CONFIG, "w7 w2 w2")
    assert failing(explanation) == []
    stages = {stage.title: stage for stage in explanation.stages}
    total, mean, perplexity = stages["Loss"].matrices[1].cells[0]
    (scored,) = score_pairs(system, [SENTENCE], ["w7 w2 w2"])
    assert scored is not None and total == pytest.approx(-scored.log_probability, abs=1e-5)
    assert mean == pytest.approx(-scored.log_probability / 4, abs=1e-5) and perplexity == pytest.approx(
        math.exp(float(mean or 0))
    )
    assert [row[1] for row in stages["What is fed, and what should be said"].matrices[0].cells][-1] == "</s>"


def test_a_small_step_lowers_the_loss_as_its_slope_foretells_and_leaves_the_model_alone(system: System) -> None:
    before = [weight.clone() for weight in system.models[0].parameters()]  # type: ignore[attr-defined]
    explanation = explain_step(system, SENTENCE, Smoothing(0.0, "all"), CONFIG, "w7 w2")
    rows = [[float(cell) for cell in row] for row in explanation.stages[-1].matrices[0].cells]  # type: ignore[arg-type]
    (_, first, _), (_, tiny_step, foretold), *_ = rows
    assert tiny_step < first
    assert first - tiny_step == pytest.approx(first - foretold, rel=0.05)
    after = list(system.models[0].parameters())  # type: ignore[attr-defined]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(weight.grad is None for weight in after)


@pytest.mark.parametrize("share", ["all", "others", "words"])
def test_a_step_goes_down_the_slope_of_the_smoothed_loss(system: System, share: str) -> None:
    tokenizer, epsilon = system.target_tokenizer, 0.2
    pad, start, end = tokenizer.specials.pad, tokenizer.specials.start, tokenizer.specials.end
    said, vocab = tokenizer.encode("w7 w2"), len(tokenizer)
    source = torch.tensor([[*tokenizer.encode(SENTENCE), end]])
    model: Any = copy.deepcopy(system.models[0])

    def smoothed() -> torch.Tensor:
        hidden = model.step(torch.tensor([[start, *said]]), model.start(source, None, room=0)).hidden
        logs, total = model.project(hidden)[0].log_softmax(-1), torch.zeros(())
        for log, true in zip(logs, [*said, end], strict=True):
            hidden = {true} if share == "others" else {true, pad}
            others = [word for word in range(vocab) if share == "all" or word not in hidden]
            total = total - (1 - epsilon) * log[true] - epsilon / len(others) * log[others].sum()
        return total / (len(said) + 1)

    weights = list(model.parameters())
    loss = smoothed()
    slopes = torch.autograd.grad(loss, weights, allow_unused=True)
    norm = math.sqrt(sum(float(slope.square().sum()) for slope in slopes if slope is not None))
    stage = explain_step(system, SENTENCE, Smoothing(epsilon, share), CONFIG, "w7 w2").stages[-1]
    assert stage.matrices[1].cells[0][0] == pytest.approx(norm, rel=1e-4)
    assert stage.matrices[0].cells[0] == pytest.approx([0, loss.item(), loss.item()], rel=1e-5)
    assert "the slope of the smoothed loss, ε = 0.2" in stage.why
    with torch.no_grad():
        for weight, slope in zip(weights, slopes, strict=True):
            weight -= 0.01 * (0 if slope is None else slope)
    expected = [0.01, smoothed().item(), loss.item() - 0.01 * norm**2]
    assert stage.matrices[0].cells[-1] == pytest.approx(expected, rel=1e-5)
    plain = explain_step(system, SENTENCE, Smoothing(0.0, share), CONFIG, "w7 w2").stages[-1]
    assert plain.matrices[1].cells[0][0] != pytest.approx(norm, rel=1e-2) and "the slope of the loss (" in plain.why


def test_the_losses_of_a_step_have_the_same_number_of_digits(system: System) -> None:
    table = explain_step(system, SENTENCE, Smoothing(0.1, "all"), CONFIG, "w7 w2").stages[-1].matrices[0]
    written = [text.shown(cell, table.form) for row in table.cells for cell in row[1:]]
    assert len(written) == 8 and {len(number.partition(".")[2]) for number in written} == {6}


@pytest.mark.parametrize("options", [{"method": "greedy"}, {"beam": 4, "n_best": 3}, {"beam": 2, "min_length": 3}])
def test_the_tree_of_a_search_ends_in_its_translations(system: System, options: dict[str, Any]) -> None:
    config = SearchConfig(max_extra=3, **options)
    explanation = explain_search(system, SENTENCE, config)
    assert failing(explanation) == []
    (translation,) = translate(system, [SENTENCE], config)
    assert max(map(text.wide, text.render(explanation).splitlines())) <= 100
    found = explanation.stages[0].matrices[0].cells
    assert [row[0] for row in found] == [one.text for one in translation.candidates]
    assert [row[2] for row in found] == pytest.approx([one.score for one in translation.candidates], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({"length_penalty": 0.35}, "score = frac(log P, ((5 + n) / 6)^alpha) , alpha = 0.35"),
        ({"penalty": "power", "length_penalty": 1.0}, "score = frac(log P, n^alpha) , alpha = 1"),
        ({"length_penalty": 0.0}, "score = log P"),
        ({"method": "greedy"}, "score = log P"),
    ],
)
def test_the_score_of_a_search_is_told_with_its_penalty(system: System, options: dict[str, Any], formula: str) -> None:
    explanation = explain_search(system, SENTENCE, SearchConfig(max_extra=3, **options))
    assert explanation.stages[0].formula.endswith(formula)
    assert max(map(text.wide, text.render(explanation).splitlines())) <= 100


def test_an_ensemble_is_searched_by_its_mean(system: System) -> None:
    other = system_of("transformer", norm="pre")
    both = System([*system.models, *other.models], system.source_tokenizer, system.target_tokenizer, system.device)
    assert failing(explain_search(both, SENTENCE, SearchConfig(max_extra=3))) == []


def test_an_empty_sentence_cannot_be_searched(system: System) -> None:
    with pytest.raises(ConfigError, match="an empty sentence"):
        explain_search(system, "", CONFIG)


def test_a_batch_is_padded_with_what_the_vocabulary_says() -> None:
    stages = {stage.title: stage for stage in batch().stages}
    source, target_in, target_out = (one.cells for one in stages["Pad"].matrices)
    assert source == [[42, 23, 16, 31, 99], [42, 1, 16, 64, 99], [23, 99, 3, 3, 3]]
    assert target_in == [[0, 5, 8, 12, 20], [0, 1, 1, 12, 1], [0, 8, 3, 3, 3]]
    assert [row[:-1] for row in target_out[:2]] == [row[1:] for row in target_in[:2]]
    real = [[True] * 5, [True] * 5, [True, True, False, False, False]]
    assert [one.cells for one in stages["Make the masks"].matrices] == [real, real]
    assumed, late, _ = stages["Make the masks"].mistakes
    assert assumed.matrices[1].cells[0] == [False, True, True, True, True] and late.matrices[0].cells == [[5]] * 3


def test_a_batch_of_a_run_has_its_own_ids(system: System) -> None:
    explanation = explain_batch(system, [SENTENCE, "w1"], CONFIG, ["w2", "w5 w6"])
    stages = {stage.title: stage for stage in explanation.stages}
    pad, end = system.source_tokenizer.specials.pad, system.source_tokenizer.specials.end
    source = stages["Pad"].matrices[0].cells
    assert source == [[*system.source_tokenizer.encode(SENTENCE), end], [*system.source_tokenizer.encode("w1"), end, pad, pad]]
    with pytest.raises(ConfigError, match="1 targets were given for 2 sentences"):
        explain_batch(system, [SENTENCE, "w1"], CONFIG, ["w2"])


def test_tokens_that_look_like_tags_stay_words(system: System) -> None:
    for explanation in (
        explain_head(system, f"w1 {EVIL}", HeadChoice("encoder"), CONFIG, f"w2 {EVIL}"),
        explain_step(system, f"w1 {EVIL}", Smoothing(0.1, "all"), CONFIG, EVIL),
        explain_search(system, EVIL, CONFIG),
    ):
        page = html.render(explanation)
        assert "onerror" in page and "<img" not in page


def test_a_step_is_measured_by_its_logits_however_sure_the_model_is(system: System) -> None:
    sure = copy.deepcopy(system)
    with torch.no_grad():
        for weight in sure.models[0].parameters():  # type: ignore[attr-defined]
            weight.mul_(6)
    explanation = explain_step(sure, SENTENCE, Smoothing(0.1, "all"), CONFIG)
    checks = [check for stage in explanation.stages for check in stage.checks]
    assert [check.size_of for check in checks] == ["logit", "logit"] and all(check.size > 20 for check in checks)
    assert failing(explanation) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"r_drop": 5.0}, "Training adds 2.5 x the disagreement of two passes under dropout (R-Drop); that is left out here."),
        ({"guided_alignment": 0.3}, "Training adds 0.3 x the loss of guided alignment; that is left out here."),
        ({"sequence": {"method": "risk"}}, "weighs it by 0 and adds the loss of sentences that the model says itself"),
    ],
)
def test_a_step_names_the_part_of_the_loss_that_it_leaves_out(system: System, options: dict[str, Any], told: str) -> None:
    def smoothed(config: TranslationConfig) -> list[Stage]:
        explanation = explain_step(system, SENTENCE, smoothing_of(config), CONFIG, "w7 w2")
        return [stage for stage in explanation.stages if stage.title in ("Label smoothing", "One step down the slope")]

    (plain, down), (more, further) = smoothed(TranslationConfig()), smoothed(TranslationConfig.model_validate(options))
    assert "Training" not in plain.why + down.why and plain.checks[0].what.startswith("the loss that training minimizes")
    assert told in more.why and told in further.why
    assert more.checks[0].what.startswith("the part of the loss that comes from tokens")


def test_a_step_names_what_the_model_itself_wants_minimized() -> None:
    explanation = explain_step(system_of("gpt", source_loss=0.5), SENTENCE, Smoothing(0.1, "all"), CONFIG, "w7 w2")
    assert "Training adds the model's own loss 'source'; that is left out here." in explanation.stages[3].why
