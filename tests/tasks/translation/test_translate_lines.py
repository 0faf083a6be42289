"""Translation of lines: long lines, unknown words, chunks, prefixes and n-best lists."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from workshop import heed, write_recipe

from heedful.data.input_lines import read_available
from heedful.errors import CheckpointError, ConfigError, DataError, DivergedError
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.data import Examples
from heedful.tasks.translation.evaluate import evaluate, score_pairs
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import translate, translate_chunks

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
    return Translator.load(folder / "run")


def test_a_long_line_is_translated_sentence_by_sentence_and_joined(translator: Translator) -> None:
    sentences = ["w1 w2 w3 w4 w5 w6.", "W7 w8 w9 w10 w11.", "W1 w2 w3 w4."]
    short = translator.translate(sentences)
    assert translator.translate([" ".join(sentences)]) == [" ".join(short)]


def test_translations_keep_the_order_of_lines_for_any_chunks(translator: Translator) -> None:
    lines = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8", "w9 w1"]
    config = SearchConfig(beam=2)
    whole = [translation.text for translation in translate(translator.system, lines, config)]
    chunks = translate_chunks(translator.system, [[line] for line in lines], config)
    assert [translation.text for translation in chunks] == whole
    assert whole[1] == "" and len(whole) == 5


def test_an_unknown_word_is_replaced_by_the_source_word_with_most_attention(translator: Translator) -> None:
    unknown = translator.system.target_tokenizer.specials.unk
    config = SearchConfig(beam=1, replace_unknown=True)
    (translation,) = translate(translator.system, ["w1 Rosalind w2"], config, prefixes=["Rosalind"])
    assert translation.candidates[0].tokens[0] == unknown
    assert translation.text.split()[0] in ("w1", "Rosalind", "w2") and "<unk>" not in translation.text.split()[0]


@pytest.mark.parametrize("prefixes", [["w1"], ["w1", "w2", "w3"]])
def test_a_wrong_number_of_prefixes_is_an_error_after_the_lines_with_prefixes(
    translator: Translator, prefixes: list[str]
) -> None:
    translations = translate(translator.system, ["w1", "w2"], SearchConfig(), prefixes=prefixes)
    for prefix in prefixes[:2]:
        assert next(translations).text.startswith(prefix)
    with pytest.raises(ConfigError, match="expected one for each line"):
        next(translations)


def test_prefixes_are_forced_in_python(translator: Translator) -> None:
    first, second = translator.predict(["w1", "w2"], prefixes=["w3", ""])
    assert first.startswith("w3") and second == translator.predict("w2")


def test_a_stream_is_chunked_as_it_arrives() -> None:
    assert list(read_available(["a", "b", "c"], most=2)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_every_line_has_n_best_candidates(translator: Translator, options: dict[str, Any]) -> None:
    long = "w1 w2 w3 w4 w5 w6. W7 w8 w9 w10 w11. W1 w2 w3 w4."
    config = SearchConfig(**options)
    for translation in translate(translator.system, ["w1", "", long, "w2 w3"], config):
        assert len(translation.candidates) == config.n_best
        assert all(torch.tensor((c.score, c.log_probability)).isfinite().all() for c in translation.candidates)


def test_the_candidates_of_a_long_line_are_those_of_its_parts(translator: Translator) -> None:
    parts = ["w1 w2 w3 w4 w5 w6.", "W7 w8 w9 w10 w11."]
    config = SearchConfig(beam=3, n_best=3)
    whole, first, second = translate(translator.system, [" ".join(parts), *parts], config)
    for k in range(3):
        assert whole.candidates[k].text == f"{first.candidates[k].text} {second.candidates[k].text}".strip()
        assert whole.candidates[k].score == pytest.approx(first.candidates[k].score + second.candidates[k].score, abs=1e-4)


def test_if_search_returns_fewer_than_n_best_the_last_candidate_is_repeated(translator: Translator) -> None:
    config = SearchConfig(beam=30, n_best=30, max_length=1)  # one word, or none
    (translation,) = translate(translator.system, ["w1"], config)
    count = len({tuple(candidate.tokens) for candidate in translation.candidates})
    assert 1 < count < 30 == len(translation.candidates)
    assert translation.candidates[count:] == translation.candidates[count - 1 : count] * (30 - count)


def damaged(translator: Translator, value: float, device: str) -> System:
    """A copy with one weight of the output layer set to this value."""
    model = copy.deepcopy(translator.model)
    with torch.no_grad():
        list(model.parameters())[-1].view(-1)[0] = value
    return replace(translator.system, models=[model.to(device)], device=torch.device(device), engines={})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", METHODS, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights_raise_an_error_with_line_and_checkpoint(
    translator: Translator, options: dict[str, Any], value: float, device: str
) -> None:
    system = damaged(translator, value, device)
    with pytest.raises(CheckpointError, match=f"not finite at line 2; the weights of {translator.checkpoint} are damaged"):
        list(translate(system, ["", "w1 w2"], SearchConfig(**options)))
    assert len(list(translate(system, [""], SearchConfig(**options)))) == 1
    with pytest.raises(CheckpointError, match="not finite at pair 1;"):
        score_pairs(system, ["w1"], ["w2"])


@pytest.mark.parametrize("device", DEVICES)
def test_damaged_weights_raise_an_error_in_a_large_batch(translator: Translator, device: str) -> None:
    system = damaged(translator, float("nan"), device)
    with pytest.raises(CheckpointError, match=r"not finite at line \d+;"):
        list(translate(system, ["w1 w2 w3"] * 300, SearchConfig()))


def test_nonfinite_scores_in_training_mean_that_it_diverged(translator: Translator) -> None:
    system = replace(damaged(translator, float("nan"), "cpu"), checkpoint=None)
    for metrics in ([], ["bleu"]):
        with pytest.raises(DivergedError, match="training diverged"):
            evaluate(system, Examples(["w1"], ["w1"]), SearchConfig(), metrics)
    with pytest.raises(DivergedError, match="not finite at line 1: training diverged"):
        list(translate(system, ["w1"], SearchConfig()))


def test_a_text_too_long_to_tokenize_is_an_error_or_not_scored(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("data.input_lines", "tasks.translation.evaluate"):
        monkeypatch.setattr(f"heedful.{module}.MAX_CHARACTERS", 10)
    translations = translate_chunks(translator.system, [["w1 w2"], ["w1", "w1 w2 w3 w4"]], SearchConfig())
    assert next(translations).text is not None
    with pytest.raises(DataError, match="line 3 has 11 characters; expected at most 10"):
        list(translations)
    with pytest.raises(DataError, match="the prefix of line 1 has 11 characters"):
        list(translate(translator.system, ["w1"], SearchConfig(), prefixes=["w1 w2 w3 w4"]))
    scored = score_pairs(translator.system, ["w1", "w1", "w1 w2 w3 w4"], ["w1", "w1 w2 w3 w4", "w1"])
    assert [score is None for score in scored] == [False, True, True]
