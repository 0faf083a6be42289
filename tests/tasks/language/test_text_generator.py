"""A trained language model: precision and invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed

from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.tasks.language.predictor import UNUSED, TextGenerator


@pytest.fixture
def generator(tiny_runs: dict[str, Path]) -> TextGenerator:
    return TextGenerator.load(tiny_runs["language"])


def test_nonfinite_scores_are_an_error(generator: TextGenerator) -> None:
    with torch.no_grad():
        next(iter(generator.model.parameters())).fill_(float("nan"))
    for options in ({}, {"method": "greedy"}, {"beam": 2}):
        with pytest.raises(CheckpointError, match=f"not finite at line 1; the weights of {generator.checkpoint}"):
            generator.generate("the cat", length=4, **options)
    with pytest.raises(CheckpointError, match="not finite at the ending ' sees'"):
        generator.score("the cat", [" sees"])
    with pytest.raises(CheckpointError, match="not finite at a token of the text"):
        generator.evaluate("valid")


@pytest.mark.parametrize("name", UNUSED)
def test_search_options_without_effect_are_an_error(generator: TextGenerator, name: str) -> None:
    values: dict[str, Any] = {"penalty": "wu", "replace_unknown": True, "dictionary": "a.txt"}
    with pytest.raises(ConfigError, match=f"search.{name} has no effect on a language model"):
        generator.generate("the", length=2, **{name: values.get(name, 1)})


def test_only_sampling_generates_several_texts(generator: TextGenerator) -> None:
    assert len(generator.generate("the", length=2, n_best=3)) == 3
    with pytest.raises(ConfigError, match="n_best: given 3, but beam search generates one text"):
        generator.generate("the", length=2, beam=4, n_best=3)


@pytest.mark.parametrize("length", [0, -1, "3", 2.5])
def test_a_length_that_is_not_a_positive_integer_is_an_error(generator: TextGenerator, length: Any) -> None:
    for generate in (generator.generate, generator.predict):
        with pytest.raises(ConfigError, match=f"argument: length: given {length!r}, expected an integer from 1"):
            generate("the", length=length)


def test_a_prompt_too_long_to_tokenize_is_an_error(generator: TextGenerator) -> None:
    with pytest.raises(DataError, match="line 1 has 2,000,000 characters"):
        generator.generate("a " * 10**6)


def test_another_precision_changes_the_loss_a_little(
    generator: TextGenerator, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {precision: generator.at(precision).evaluate("valid")["loss"] for precision in ("fp32", "bf16", "int8")}
    assert len(set(losses.values())) == 3
    assert max(losses.values()) == pytest.approx(min(losses.values()), rel=0.02)
    assert heed("evaluate", tiny_runs["language"], "--precision", "int8", "--split", "valid", "--json") == 0
    assert f'"loss": {losses["int8"]}' in capsys.readouterr().out
