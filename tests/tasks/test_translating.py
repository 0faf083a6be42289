"""Translating as a user meets it: long lines, unknown words, chunks, prefixes."""

from __future__ import annotations

import pytest
from workshop import heed, write_recipe

from heedful.build import Translator, load_translator
from heedful.data.texts import arriving
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.translating import translate, translate_chunks


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


def test_too_few_prefixes_are_refused(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="expected one for each line"):
        list(translate(translator.system, ["w1", "w2"], SearchConfig(), prefixes=["w1"]))


def test_a_stream_is_answered_as_it_arrives() -> None:
    assert list(arriving(["a", "b", "c"], most=2)) == [["a", "b"], ["c"]]
