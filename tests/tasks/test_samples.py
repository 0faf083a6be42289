"""What a task contributes to analyses: sentences of its data, and teacher-forced batches of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from workshop import heed

import heedful
from heedful.data.grammar import generate
from heedful.data.samples import Sample
from heedful.nn.model import inference_context
from heedful.tasks import TASKS, find_task
from heedful.tasks.forced import PADDING
from heedful.tasks.predictor import Predictor

ANALYZED = [task for task in TASKS if find_task(task).predictor.sample_texts is not Predictor.sample_texts]


@pytest.mark.parametrize("task", ANALYZED)
def test_the_losses_of_the_validation_data_add_up_to_its_loss(tiny_runs: dict[str, Path], task: str) -> None:
    """For a language model, line by line: its validation loss is of blocks of lines. A masked one hides other tokens there."""
    predictor = heedful.load(tiny_runs[task])
    samples = list(predictor.sample_texts("valid"))
    total, count, examples = 0.0, 0, 0
    with inference_context(predictor.model):
        for batch in predictor.forced_batches(samples):
            total, count = total + float(batch.losses().sum()), count + int(batch.mask.sum())
            examples += len(batch.targets)
            assert batch.targets.shape == batch.logits().shape[:2] and len(batch.samples) == len(batch.targets)
    assert examples == len(samples) > 0
    if task == "language":
        generator = heedful.TextGenerator.load(tiny_runs[task])
        expected = -sum(generator.score("\n", [f"{sample.target}\n"])[0] for sample in samples)
        assert total == pytest.approx(expected, rel=0.2)  # the score has one more token of context
    else:
        relative = 0.2 if task == "masked" else 0.0  # validation hides other tokens
        assert total / count == pytest.approx(predictor.validate().figures["loss"], rel=relative, abs=1e-4)


@pytest.mark.parametrize("task", ANALYZED)
def test_batches_do_not_depend_on_padding(tiny_runs: dict[str, Path], task: str) -> None:
    predictor = heedful.load(tiny_runs[task])
    samples = list(islice(predictor.sample_texts("valid"), 6))
    with inference_context(predictor.model):
        together = torch.cat([batch.losses() for batch in predictor.forced_batches(samples)]).sort().values
        single = torch.cat([b.losses() for one in samples for b in predictor.forced_batches([one])]).sort().values
    torch.testing.assert_close(together, single, atol=1e-4, rtol=1e-4)


def test_the_built_in_corpus_has_alignments_and_trees(tmp_path: Path) -> None:
    few = ("training.steps=1", "task.validation_sentences=2", "data.counts={train=100, valid=5, test=7}", "model.dim=16")
    assert heed("train", "demo", *few, "model.feed_forward=32", "--run", tmp_path / "run") == 0
    translator = heedful.load(tmp_path / "run")
    samples = list(translator.sample_texts("test"))
    sentences = list(generate("test", 7))
    assert [sample.source for sample in samples] == [sentence.source for sentence in sentences]
    known = [(sample.alignment, sample.source_arcs, sample.target_arcs) for sample in samples]
    assert all(one is not None for sample in known for one in sample)
    assert len(list(translator.sample_texts("valid"))) == 5


def test_a_split_that_is_missing_has_no_samples(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    translator = heedful.load(tiny_runs["translation"])
    data = translator.run.data.model_copy(update={"test": None})
    run = translator.run.model_copy(update={"data": data})  # type: ignore[attr-defined]
    assert list(type(translator)(run, translator.system, translator.checkpoint).sample_texts("test")) == []


def test_the_sample_of_a_text_has_it_on_the_side_of_the_input(tiny_runs: dict[str, Path]) -> None:
    samples = {task: heedful.load(run).sample_of("the cat") for task, run in tiny_runs.items()}
    assert samples["translation"] == Sample("the cat")
    assert samples["language"] == samples["classification"] == Sample(None, "the cat")


def test_a_missing_label_is_predicted_and_a_long_example_left_out(tiny_runs: dict[str, Path]) -> None:
    classifier = heedful.Classifier.load(tiny_runs["classification"])
    samples = [Sample(None, "the cat sees"), Sample(None, "the " * 300), Sample(None, "")]
    (batch,) = classifier.forced_batches(samples)
    assert batch.targets.tolist() == [[classifier.run.task.labels.index(classifier.predict("the cat sees"))]]
    assert not bool((batch.targets == PADDING).any())


def test_files_are_read_in_the_format_of_the_task(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    lines = tmp_path / "lines.tsv"
    lines.write_text("yes\tthe cat sees\n")
    (pair,) = heedful.load(tiny_runs["translation"]).read_samples(lines)
    (text,) = heedful.load(tiny_runs["language"]).read_samples(lines)
    (example,) = heedful.load(tiny_runs["classification"]).read_samples(lines)
    assert (pair.source, pair.target) == ("yes", "the cat sees")
    assert (text.source, text.target) == (None, "yes\tthe cat sees")
    assert (example.target, example.label) == ("the cat sees", "yes")


def test_the_training_lines_are_those_of_the_tokenizer(tiny_runs: dict[str, Path]) -> None:
    assert next(heedful.load(tiny_runs["language"]).training_lines("target")) == "the cat sees the dog"
    assert list(heedful.load(tiny_runs["language"]).training_lines("source")) == []
