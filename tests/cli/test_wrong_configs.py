"""Invalid configs, each with its whole message; none creates a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import heed, write_recipe

CASES = {
    "a misspelled key": (
        ["model.postion=rotary"],
        "command line: model.postion: unknown key\n\nhint: did you mean 'position'?",
    ),
    "a wrong choice": (
        ["model.position=rotry"],
        "command line: model.position: given 'rotry', expected one of: none, sinusoidal, learned, relative, t5, rotary, "
        "alibi\n\nhint: did you mean 'rotary'?",
    ),
    "a number out of range": (
        ["training.steps=0"],
        "command line: training.steps: given 0, expected an integer from 1 to 1,000,000,000",
    ),
    "a text for a number": (
        ["training.steps=many"],
        "command line: training.steps: given 'many', expected an integer from 1 to 1,000,000,000",
    ),
    "heads that do not divide": (
        ["model.heads=3"],
        "command line: model.heads: given 3, which does not divide dim 16; choose a divisor or set model.head_dim",
    ),
    "heads for too many layers": (
        ["model.heads=[2,2,2]"],
        "command line: model.heads: given [2, 2, 2], expected one number or one for each of 2 layers",
    ),
    "an option without effect": (
        ["model.relative_clip=4"],
        "command line: model.relative_clip: given 4, but has no effect because only relative positions are clipped, not "
        "'sinusoidal'; remove it",
    ),
    "tied embeddings of separate vocabularies": (
        ["tokenizer.shared=false"],
        "command line: tokenizer.shared=false: model.tie: the default is 'all', but the vocabularies are separate; "
        "expected 'output' or 'none' with tokenizer.shared = false",
    ),
    "tied embeddings of separate vocabularies, asked for": (
        ["tokenizer.shared=false", "model.tie=all"],
        "command line: model.tie: given 'all', but the vocabularies are separate; expected 'output' or 'none' with "
        "tokenizer.shared = false",
    ),
    "R-Drop without dropout": (
        ["task.r_drop=5", "model.dropout=0"],
        "command line: task.r_drop: given 5.0, but has no effect because every dropout of the model is 0, so that both passes "
        "are identical; remove it",
    ),
    "one file for both sides": (
        ["data.train={source='a', target='a'}"],
        "command line: data.train: source and target are both 'a'; expected two files, one for each language",
    ),
    "a seed of more than 64 bits": (
        ["seed=18446744073709551616"],
        "command line: seed: given 18446744073709551616, expected an integer from 0 to 9,223,372,036,854,775,807",
    ),
    "brackets without end": (
        ["training.steps=" + "[" * 3000],
        "command line: training.steps: given '" + "[" * 75 + " …', which is nested deeper than 32 levels",
    ),
    "a key without end": (
        ["a." * 3000 + "a=1"],
        "command line: given a key of 3,001 parts, expected at most 32",
    ),
    "an unknown metric": (
        ["training.metric=blue"],
        "command line: training.metric: given 'blue', expected one of: loss, perplexity, bleu, chrf",
    ),
    "an option of the recipe that the overrides leave without effect": (
        ["tokenizer.kind=unigram"],
        "command line: tokenizer.kind=unigram conflicts with {recipe}:9: tokenizer.min_frequency: given 1, but has no effect "
        "with kind = 'unigram'; its options are: lowercase, normalize, vocab",
    ),
    "a dimension that the heads of the recipe do not divide": (
        ["model.dim=15", "model.position=none"],
        "command line: model.dim=15 conflicts with {recipe}:14: model.heads: given 2, which does not divide dim 15; choose a "
        "divisor or set model.head_dim",
    ),
    "no override at all": (
        ["training.steps"],
        "command line: given 'training.steps', expected key=value, as in training.steps=200\n\n"
        "hint: did you mean 'training.steps=VALUE'?",
    ),
    "several problems at once": (
        ["model.dmi=32", "search.beam=0", "training.average=last", "training.keep_last=2"],
        "3 problems on the command line:\n"
        "  command line: model.dmi: unknown key; did you mean 'dim'?\n"
        "  command line: training.keep_last: given 2, expected at least average_count = 5\n"
        "  command line: search.beam: given 0, expected an integer from 1 to 10,000",
    ),
    "a table with a number for a key": (
        ["data.train.0.tsv=a"],
        "command line: data.train.0: data.train is one table, not a list; write data.train.KEY=VALUE without the number",
    ),
    "an override inside a value": (
        ["training.steps.more=1"],
        "command line: training.steps.more: given '1', but training.steps is 6, not a table ({recipe}:25)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_invalid_config_has_its_message_and_creates_no_run_folder(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides, expected = CASES[case]
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, *overrides, "--run", run) == 2
    assert capsys.readouterr().err == f"error: {expected.format(recipe=recipe)}\n"
    assert not run.exists()


def test_a_mistake_of_the_recipe_keeps_its_line_beside_one_of_the_overrides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path, "metric = 'blue'\n")
    recipe.write_text(text := recipe.read_text().replace("max_extra = 3", "beam = 0"))
    assert heed("train", recipe, "tokenizer.kind=unigram") == 2
    message = capsys.readouterr().err
    line = text.splitlines().index("beam = 0") + 1
    assert f"{recipe}:{line}: search.beam: given 0" in message
    assert f"command line: tokenizer.kind=unigram conflicts with {recipe}:9: tokenizer.min_frequency: given 1" in message
    assert "2 problems" in message


def test_broken_toml_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[model]\ndim = = 3\n")
    assert heed("train", recipe) == 2
    assert capsys.readouterr().err == f"error: {recipe}:2:7: not valid TOML: invalid value\n"


@pytest.mark.parametrize("text", ["x = " + "[" * 3000, "a." * 3000 + "a = 1", f"[{'.'.join('a' * 3000)}]\nb = 1"])
def test_a_file_that_is_nested_too_deeply_is_one_message(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    assert heed("train", recipe) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {recipe}:1:") and message.endswith("not valid TOML: nested deeper than 32 levels\n")


def test_a_missing_recipe_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("train", "multi30k-en-dee") == 2
    assert capsys.readouterr().err.endswith("hint: did you mean 'multi30k-en-de'?\n")


def test_a_problem_in_the_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path, "clipp = 3\n")
    assert heed("train", recipe) == 2
    line = len(recipe.read_text().splitlines())
    assert capsys.readouterr().err == f"error: {recipe}:{line}: training.clipp: unknown key\n\nhint: did you mean 'clip'?\n"


def test_an_option_without_effect_is_reported_on_its_own_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace('kind = "words"', 'kind = "unigram"'))
    assert heed("train", recipe) == 2
    assert f"error: {recipe}:9: tokenizer.min_frequency: given 1, but has no effect" in capsys.readouterr().err


def test_one_option_with_two_values_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("config", "show", "demo", "model.dim=32", "model.dim=64") == 2
    assert "command line: model.dim is set twice, to 32 and 64" in capsys.readouterr().err
