"""Replacing unknown words by attention: the aligned source word, ensembles, dictionaries and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from workshop import heed, write_recipe

from heedful.errors import ConfigError, DataError
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation import attention_reader
from heedful.tasks.translation.attention_reader import AttentionReader, read_dictionary, replace_unknown_words
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import translate

FIXED = 'model={family="sutskever", dim=8, layers=1}'
REPLACING = SearchConfig(beam=2, replace_unknown=True)


@pytest.fixture(scope="module")
def attending(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("attending")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return Translator.load(folder / "run")


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("fixed")
    assert heed("train", write_recipe(folder), FIXED, "training.steps=2", "--run", folder / "run") == 0
    return Translator.load(folder / "run")


def one_hot_weights(*positions: int) -> Tensor:
    """(target, 8): all attention of each target token on one position."""
    return torch.nn.functional.one_hot(torch.tensor(positions), 8).float()


def test_each_unknown_word_becomes_the_source_word_with_most_attention(
    attending: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, text = attending.system, "Rosalind w2 Orlando"
    unknown, word = system.target_tokenizer.specials.unk, system.target_tokenizer.encode("w2")[0]
    reader = AttentionReader(system.models[0], system.source_tokenizer, system.target_tokenizer, system.device)
    monkeypatch.setattr(attention_reader, "mean_source_weights", lambda *inputs: one_hot_weights(2, 1, 0, 3))
    ids, tokens = system.source_tokenizer.encode(text), [unknown, word, unknown]
    assert replace_unknown_words(reader, ids, text, tokens, {}) == "Orlando w2 Rosalind"
    assert replace_unknown_words(reader, ids, text, tokens, {"Orlando": "Roland"}) == "Roland w2 Rosalind"
    assert replace_unknown_words(reader, ids, text, [word], {}) is None


def test_a_model_without_attention_to_the_source_is_an_error_with_the_option(fixed: Translator) -> None:
    for config, name in ((REPLACING, "replace_unknown"), (SearchConfig(beam=2, coverage=0.2), "coverage")):
        with pytest.raises(ConfigError, match=rf"search\.{name} needs a model that attends to its source"):
            list(translate(fixed.system, ["w1"], config))


def test_an_ensemble_reads_the_attention_of_the_member_that_has_it(attending: Translator, fixed: Translator) -> None:
    def translation(*members: Translator) -> str:
        first = members[0].system
        models = [member.system.models[0] for member in members]
        both = System(models, first.source_tokenizer, first.target_tokenizer, first.device, first.max_length)
        (result,) = translate(both, ["w1 Rosalind"], REPLACING, prefixes=["Rosalind"])
        return result.text

    assert translation(attending, fixed) == translation(fixed, attending)


def test_of_several_dictionary_entries_the_first_is_used(tmp_path: Path) -> None:
    file = tmp_path / "words.tsv"
    file.write_text("Rom\tRoma\nRom\tBucarest\nMailand\tMilano\n")
    assert read_dictionary(str(file)) == {"Rom": "Roma", "Mailand": "Milano"}
    file = tmp_path / "broken.tsv"
    file.write_text("Rom Roma\n")
    with pytest.raises(DataError, match=r"line 1 is 'Rom Roma'; expected a source word, a tab and its translation"):
        read_dictionary(str(file))


def test_a_dictionary_without_replace_unknown_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"search.replace_unknown is false"):
        SearchConfig.model_validate({"dictionary": "words.tsv"})
