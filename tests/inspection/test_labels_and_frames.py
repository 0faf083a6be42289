"""Analyses of classifiers with several labels and of taggers of numbers: values, not only that they are shown."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from workshop import heed

import heedful
from heedful import inspection
from heedful.inspection.measures.interventions import saliency_of, target_log_probabilities
from heedful.inspection.measures.saliency import midpoints
from heedful.nn.hooks import record
from heedful.nn.model import inference_context

TEXT, FRAMES = "a dog sees", "1\t2\n-3\t0.5\n0\t1"


def test_every_label_is_an_output_whose_probability_is_that_of_its_sigmoid(tiny_several: Path) -> None:
    classifier = heedful.Classifier.load(tiny_several)
    (probabilities,) = classifier.predict_proba([TEXT])
    example = classifier.encode_example(TEXT, "round|red")
    assert example.outputs.pieces == ["red: yes", "round: yes", "flat: no"] and example.label == "red, round"
    logs = target_log_probabilities(classifier, example)
    expected = [probabilities["red"], probabilities["round"], 1 - probabilities["flat"]]
    assert logs.exp().tolist() == pytest.approx(expected, abs=1e-5)
    decoded, (predicted,) = classifier.decode_example(example), classifier.predictions([TEXT])
    assert decoded.text == (", ".join(predicted.labels) or "(no label)")
    likely = math.prod(max(one, 1 - one) for one in probabilities.values())
    assert math.exp(decoded.log_probability) == pytest.approx(likely, abs=1e-5)
    assert classifier.encode_example(TEXT, "").label == "(no label)"
    shown = inspection.document(classifier, TEXT, "round|red")
    assert shown.gold == "red, round" and shown.predicted == decoded.text
    assert shown.probability == pytest.approx(likely, abs=1e-5)


def test_the_loss_of_several_labels_is_their_binary_cross_entropy(tiny_several: Path) -> None:
    classifier = heedful.Classifier.load(tiny_several)
    samples = list(classifier.sample_texts("valid"))[:3]
    assert [sample.label for sample in samples] == ["red\tround", "red", ""]
    (batch,) = classifier.forced_batches(samples)
    with inference_context(classifier.model):
        losses = batch.losses()
        logits = batch.logits()[..., 1]  # (examples, labels): those of "no" are 0
    gold = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    expected = functional.binary_cross_entropy_with_logits(logits, gold, reduction="none").sum(-1)
    torch.testing.assert_close(losses, expected)
    (from_training,) = (compute() for compute in classifier.training_losses(3))
    torch.testing.assert_close(losses / 3, from_training.detach())


@pytest.mark.parametrize("task", ["several", "numeric"])
def test_integrated_gradients_sum_to_the_change_of_log_p(task: str, tiny_several: Path, tiny_numeric: Path) -> None:
    """From inputs that are zero, which for frames is their mean, to the given ones."""
    predictor = heedful.load(tiny_several if task == "several" else tiny_numeric)
    example = predictor.encode_example(TEXT if task == "several" else FRAMES)
    found = saliency_of(predictor, example, midpoints(64))
    assert found.target.shape == (len(example.outputs.ids), len(example.inputs))
    model = predictor.model
    zero = [module.register_forward_hook(lambda module, inputs, out: 0 * out) for module in model.input_vectors()]
    try:
        start = target_log_probabilities(predictor, example)
    finally:
        for hook in zero:
            hook.remove()
    change = target_log_probabilities(predictor, example) - start
    assert float(change.abs().max()) > 1e-4
    torch.testing.assert_close(found.target.sum(-1), change, atol=2e-3, rtol=0.02)


def test_frames_are_the_queries_and_keys_of_a_numeric_tagger(tiny_numeric: Path) -> None:
    tagger = heedful.Tagger.load(tiny_numeric)
    example = tagger.encode_example(f"{FRAMES}\n")
    assert example.inputs == example.queries == ["#1", "#2", "#3"] and example.start is None and example.end is None
    assert example.label == tagger.predict(FRAMES) and example.target.text == "3 frames of 2 numbers"
    (attention,) = inspection.attention(tagger, FRAMES).trace.maps
    with inference_context(tagger.model), record(tagger.model.base_model, attention.name) as recorded:
        vectors = torch.tensor([[[1.0, 2.0], [-3.0, 0.5], [0.0, 1.0]]])
        tagger.tagger.body.encode(vectors)
    assert attention.weights.shape == (2, 3, 3) and torch.equal(attention.weights, recorded[attention.name][0])


def test_no_frame_is_left_out_of_the_roles_of_heads(tiny_numeric: Path) -> None:
    """Six sequences of three and two frames have 15 frames, 9 with a neighbor on one side, and 3 with one at distance 2."""
    tagger = heedful.Tagger.load(tiny_numeric)
    result = inspection.heads(tagger, sentences=6)
    found = [measure for head in result.heads for measure in head.measures]
    cases = {"itself": 15, "+1": 9, "-1": 9, "+2": 3, "-2": 3}
    assert found and all(measure.role == "positional" and measure.cases == cases[measure.what] for measure in found)
    (batch,) = tagger.forced_batches(list(tagger.sample_texts("valid"))[:2])
    assert sorted((len(one.target.ids), one.before) for one in batch.samples) == [(2, 0), (3, 0)]
    assert batch.targets.shape == (2, 3)


def test_heads_are_pruned_where_the_family_allows_it(
    tiny_several: Path, tiny_numeric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("prune", tiny_several, "--keep", "self=2", "--sentences", "6", "--out", tmp_path / "pruned") == 0
    pruned = heedful.Classifier.load(tmp_path / "pruned")
    assert sum(one.heads for one in pruned.model.attentions()) == 2 and len(pruned.predict_proba([TEXT])) == 1
    capsys.readouterr()
    assert heed("prune", tiny_numeric, "--keep", "self=1", "--out", tmp_path / "other") == 2
    assert "heads of family 'encoder' cannot be pruned" in capsys.readouterr().err
