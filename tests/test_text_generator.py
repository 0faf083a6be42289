"""A trained language model: what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed

from heedful.build import load
from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.text_generator import UNUSED, TextGenerator


@pytest.fixture
def writer(tiny_runs: dict[str, Path]) -> TextGenerator:
    found: TextGenerator = load(tiny_runs["language"])
    return found


def test_scores_that_are_not_finite_are_an_error(writer: TextGenerator) -> None:
    with torch.no_grad():
        next(iter(writer.model.parameters())).fill_(float("nan"))  # type: ignore[attr-defined]
    for options in ({}, {"method": "greedy"}, {"beam": 2}):
        with pytest.raises(CheckpointError, match=f"not finite at token 3; the weights of {writer.checkpoint}"):
            writer.generate("the cat", length=4, **options)
    with pytest.raises(CheckpointError, match="not finite at the ending ' sees'"):
        writer.score("the cat", [" sees"])
    with pytest.raises(CheckpointError, match="not finite at some token of the text"):
        writer.evaluate("valid")


@pytest.mark.parametrize("name", UNUSED)
def test_search_options_without_effect_are_refused(writer: TextGenerator, name: str) -> None:
    values: dict[str, Any] = {"penalty": "wu", "replace_unknown": True, "dictionary": "a.txt"}
    with pytest.raises(ConfigError, match=f"search.{name} has no effect on a language model"):
        writer.generate("the", length=2, **{name: values.get(name, 1)})


def test_only_sampling_generates_several_texts(writer: TextGenerator) -> None:
    assert len(writer.generate("the", length=2, n_best=3)) == 3
    with pytest.raises(ConfigError, match="n_best: given 3, but beam search generates one text"):
        writer.generate("the", length=2, beam=4, n_best=3)


def test_a_prompt_too_long_to_tokenize_is_refused(writer: TextGenerator) -> None:
    with pytest.raises(DataError, match="the prompt has 2,000,000 characters"):
        writer.generate("a " * 10**6)


def test_another_precision_changes_the_loss_a_little(
    writer: TextGenerator, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {precision: writer.at(precision).evaluate("valid")["loss"] for precision in ("fp32", "bf16", "int8")}
    assert len(set(losses.values())) == 3
    assert max(losses.values()) == pytest.approx(min(losses.values()), rel=0.02)
    assert heed("evaluate", tiny_runs["language"], "--precision", "int8", "--split", "valid", "--json") == 0
    assert f'"loss": {losses["int8"]}' in capsys.readouterr().out
