"""Every metric of a validation is declared by its task, with the direction that is better."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_pairs

from heedful.evaluation.metrics import METRICS
from heedful.runs.config import read_run
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.language.task import LanguageConfig
from heedful.tasks.translation.config import TranslationConfig
from heedful.training.train_state import TrainState, is_better

MODEL = '[model]\nfamily = "{family}"\ndim = 16\nlayers = 1\nheads = 2\nfeed_forward = 32\n'
SETTINGS = """
[training]
steps = {steps}
save_every = 1000
validate_every = {every}
report_every = 4

[training.schedule]
name = "constant"
learning_rate = 1e-2
warmup = 1
"""
EVERY_METRIC = json.dumps(list(METRICS))


def translation(folder: Path) -> str:
    data = write_pairs(folder / "pairs.tsv")
    task = f"[task]\nvalidation_sentences = 2\nvalidation_metrics = {EVERY_METRIC}\n"
    pairs = f'[data]\ntrain = {{ tsv = "{data}" }}\nvalid = {{ tsv = "{data}" }}\n'
    return task + pairs + '[tokenizer]\nkind = "words"\nmin_frequency = 1\n' + MODEL.format(family="transformer")


def language(folder: Path) -> str:
    generator = random.Random(1)
    text = folder / "text.txt"
    text.write_text("".join(" ".join(generator.choice(("so", "la", "ti")) for _ in range(8)) + "\n" for _ in range(80)))
    data = f'[data]\nform = "text"\ntrain = {{ file = "{text}" }}\nvalid = {{ file = "{text}" }}\nblock = 16\nbatch = 4\n'
    return f'[task]\nname = "language"\nsamples = 0\n{data}[tokenizer]\nkind = "characters"\n' + MODEL.format(family="gpt")


def classification(folder: Path) -> str:
    table = folder / "table.tsv"
    table.write_text("".join(f"{label}\tthe film is {label}\n" for label in ("good", "bad") * 20))
    data = f'[data]\nform = "labeled"\ntrain = {{ file = "{table}" }}\nvalid = {{ file = "{table}" }}\ntexts = [2]\nbatch = 8\n'
    task = '[task]\nname = "classification"\nlabels = ["good", "bad"]\n'
    return f'{task}{data}[tokenizer]\nkind = "words"\nmin_frequency = 1\n' + MODEL.format(family="gpt")


RECIPES = {"translation": translation, "language": language, "classification": classification}


def train(task: str, folder: Path, *overrides: str, steps: int = 4, every: int = 4) -> list[dict[str, Any]]:
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPES[task](folder) + SETTINGS.format(steps=steps, every=every))
    assert heed("train", recipe, *overrides, "--run", folder / "run") == 0
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", RECIPES)  # of every task: contracts/test_tasks.py
def test_every_metric_of_a_validation_is_declared(name: str, tmp_path: Path) -> None:
    records = train(name, tmp_path)
    config = read_run(tmp_path / "run" / "config.toml").config
    valid = next(record for record in records if record["kind"] == "valid")
    assert valid.keys() - {"step", "kind", "seconds", "time"} == config.task.metrics.keys()
    assert set(config.task.metrics.values()) <= {"lower", "higher"}
    (training,) = (record for record in records if record["kind"] == "train")
    assert f"{config.task.unit}_per_second" in training


@pytest.mark.parametrize("metric", METRICS)
def test_a_perfect_translation_is_better_than_a_broken_one(metric: str) -> None:
    references = ["the cat sat on the mat today", "a dog ran home very fast indeed"]
    broken = ["x y z", "zzz"]
    perfect, bad = (METRICS[metric](hypotheses, references).value for hypotheses in (references, broken))
    declared = TranslationConfig(validation_metrics=(metric,)).metrics[metric]  # type: ignore[arg-type]
    assert is_better(perfect, bad, declared) and not is_better(bad, perfect, declared)


@pytest.mark.parametrize("metric", ["loss", "perplexity", "word_perplexity", "bits_per_character", "bits_per_byte"])
def test_every_metric_of_a_language_model_improves_in_training(
    metric: str, learned: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    before, after = learned
    assert is_better(after[metric], before[metric], LanguageConfig(name="language").metrics[metric])


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first and last validation of a language model, ranked by bits per character."""
    folder = tmp_path_factory.mktemp("learned")
    records = train("language", folder, "training.metric=bits_per_character", "training.patience=2", steps=40, every=10)
    valid = [record for record in records if record["kind"] == "valid"]
    return valid[0], valid[-1]


def test_patience_does_not_stop_a_run_that_improves(
    learned: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    assert learned[1]["step"] == 40, "a run that improves is not stopped"


def test_an_unknown_metric_is_an_error_before_data_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(classification(tmp_path) + SETTINGS.format(steps=4, every=4))
    (tmp_path / "table.tsv").unlink()
    assert heed("train", recipe, "training.metric=bleu", "--run", tmp_path / "run") == 2
    assert "given 'bleu', expected one of: loss, accuracy" in capsys.readouterr().err


def test_ranking_follows_the_direction() -> None:
    for direction, best in (("lower", 1.0), ("higher", 3.0)):
        train_state = TrainState()
        for train_state.step, value in enumerate((2.0, 1.0, 3.0)):
            train_state.record_validation(value, direction, keep=1)  # type: ignore[arg-type]
        assert train_state.best[0][1] == best


def test_progress_of_classification_is_in_examples_without_perplexity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("classification", tmp_path)
    shown = capsys.readouterr().err
    assert is_better(1.0, 0.0, ClassificationConfig(name="classification", labels=("no", "yes")).metrics["accuracy"])
    assert "examples/s" in shown and "tokens/s" not in shown and "ppl" not in shown
    assert "4 steps on 32 examples" in (tmp_path / "run" / "README.md").read_text()
