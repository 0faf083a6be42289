"""Translating as a user meets it: long lines, unknown words, chunks, prefixes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from workshop import heed, write_recipe

from heedful.build import Translator, load_translator
from heedful.data.input_lines import read_available
from heedful.errors import CheckpointError, ConfigError, DataError, DivergedError
from heedful.search import SearchConfig
from heedful.tasks.evaluate_translations import Examples, evaluate, score_pairs
from heedful.tasks.translate import System, translate, translate_chunks

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
METHODS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"beam": 3, "n_best": 2},
    {"beam": 20},
    {"beam": 2, "no_repeat": 2},
    {"method": "sample", "n_best": 2},
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("translating")
    recipe = write_recipe(folder)
    assert heed("train", recipe, "training.steps=2", "data.max_length=10", "--run", folder / "run") == 0
    return load_translator(folder / "run")


def test_a_long_line_is_translated_sentence_by_sentence_and_joined(translator: Translator) -> None:
    sentences = ["w1 w2 w3 w4 w5 w6.", "W7 w8 w9 w10 w11.", "W1 w2 w3 w4."]
    short = translator.translate(sentences)
    assert translator.translate([" ".join(sentences)]) == [" ".join(short)]


def test_lines_come_out_as_they_came_in_however_they_are_gathered(translator: Translator) -> None:
    lines = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8", "w9 w1"]
    config = SearchConfig(beam=2)
    whole = [one.text for one in translate(translator.system, lines, config)]
    assert [one.text for one in translate_chunks(translator.system, [[line] for line in lines], config)] == whole
    assert whole[1] == "" and len(whole) == 5


def test_an_unknown_word_becomes_the_source_word_that_was_looked_at(translator: Translator) -> None:
    unknown = translator.system.target_tokenizer.specials.unk
    config = SearchConfig(beam=1, replace_unknown=True)
    (one,) = translate(translator.system, ["w1 Rosalind w2"], config, prefixes=["Rosalind"])
    assert one.candidates[0].tokens[0] == unknown
    assert one.text.split()[0] in ("w1", "Rosalind", "w2") and "<unk>" not in one.text.split()[0]


@pytest.mark.parametrize("prefixes", [["w1"], ["w1", "w2", "w3"]])
def test_another_number_of_prefixes_than_lines_is_refused_after_what_has_one(
    translator: Translator, prefixes: list[str]
) -> None:
    translations = translate(translator.system, ["w1", "w2"], SearchConfig(), prefixes=prefixes)
    for prefix in prefixes[:2]:
        assert next(translations).text.startswith(prefix)
    with pytest.raises(ConfigError, match="expected one for each line"):
        next(translations)


def test_a_stream_is_answered_as_it_arrives() -> None:
    assert list(read_available(["a", "b", "c"], most=2)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_every_line_has_n_best_candidates(translator: Translator, options: dict[str, Any]) -> None:
    long = "w1 w2 w3 w4 w5 w6. W7 w8 w9 w10 w11. W1 w2 w3 w4."
    config = SearchConfig(**options)
    for one in translate(translator.system, ["w1", "", long, "w2 w3"], config):
        assert len(one.candidates) == config.n_best
        assert all(torch.tensor((c.score, c.log_probability)).isfinite().all() for c in one.candidates)


def test_the_candidates_of_a_long_line_are_those_of_its_parts(translator: Translator) -> None:
    parts = ["w1 w2 w3 w4 w5 w6.", "W7 w8 w9 w10 w11."]
    config = SearchConfig(beam=3, n_best=3)
    whole, first, second = translate(translator.system, [" ".join(parts), *parts], config)
    for k in range(3):
        assert whole.candidates[k].text == f"{first.candidates[k].text} {second.candidates[k].text}".strip()
        assert whole.candidates[k].score == pytest.approx(first.candidates[k].score + second.candidates[k].score, abs=1e-4)


def test_where_nothing_else_can_be_found_the_last_candidate_is_repeated(translator: Translator) -> None:
    config = SearchConfig(beam=30, n_best=30, max_length=1)  # one word, or none
    (one,) = translate(translator.system, ["w1"], config)
    count = len({tuple(candidate.tokens) for candidate in one.candidates})
    assert 1 < count < 30 == len(one.candidates)
    assert one.candidates[count:] == one.candidates[count - 1 : count] * (30 - count)


def damaged(translator: Translator, value: float, device: str) -> System:
    """A copy whose output layer has one such weight."""
    model = copy.deepcopy(translator.model)
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad():
        list(model.parameters())[-1].view(-1)[0] = value
    return replace(translator.system, models=[model.to(device)], device=torch.device(device), engines={})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", METHODS, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights_are_an_error_that_names_line_and_checkpoint(
    translator: Translator, options: dict[str, Any], value: float, device: str
) -> None:
    system = damaged(translator, value, device)
    with pytest.raises(CheckpointError, match=f"not finite at line 2; the weights of {translator.checkpoint} are damaged"):
        list(translate(system, ["", "w1 w2"], SearchConfig(**options)))
    assert len(list(translate(system, [""], SearchConfig(**options)))) == 1
    with pytest.raises(CheckpointError, match="not finite at pair 1;"):
        score_pairs(system, ["w1"], ["w2"])


@pytest.mark.parametrize("device", DEVICES)
def test_many_lines_at_once_find_the_same_error(translator: Translator, device: str) -> None:
    system = damaged(translator, float("nan"), device)
    with pytest.raises(CheckpointError, match=r"not finite at line \d+;"):
        list(translate(system, ["w1 w2 w3"] * 300, SearchConfig()))


def test_scores_that_are_not_finite_while_training_mean_that_it_diverged(translator: Translator) -> None:
    system = replace(damaged(translator, float("nan"), "cpu"), checkpoint=None)
    for metrics in ([], ["bleu"]):
        with pytest.raises(DivergedError, match="training diverged"):
            evaluate(system, Examples(["w1"], ["w1"]), SearchConfig(), metrics)
    with pytest.raises(DivergedError, match="not finite at line 1: training diverged"):
        list(translate(system, ["w1"], SearchConfig()))


def test_a_text_too_long_to_tokenize_is_refused_or_left_out(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("data.texts", "tasks.evaluating"):
        monkeypatch.setattr(f"heedful.{module}.MAX_CHARACTERS", 10)
    translations = translate_chunks(translator.system, [["w1 w2"], ["w1", "w1 w2 w3 w4"]], SearchConfig())
    assert next(translations).text is not None
    with pytest.raises(DataError, match="line 3 has 11 characters; expected at most 10"):
        list(translations)
    with pytest.raises(DataError, match="the prefix of line 1 has 11 characters"):
        list(translate(translator.system, ["w1"], SearchConfig(), prefixes=["w1 w2 w3 w4"]))
    scored = score_pairs(translator.system, ["w1", "w1", "w1 w2 w3 w4"], ["w1", "w1 w2 w3 w4", "w1"])
    assert [one is None for one in scored] == [False, True, True]
