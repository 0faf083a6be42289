"""Sequence-level gradients equal those of the exact expectation over all possible sentences."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import END, FAMILIES, PAD, START, VOCAB, WORDS, Pairs, config_problems, perturb, tiny_config
from torch import Tensor
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.evaluation.gleu import gleu
from heedful.models import MODELS
from heedful.nn.losses import Loss
from heedful.nn.model import SequenceModel
from heedful.nn.sequence_losses import reward_loss, risk_loss
from heedful.tasks.batches import Batch
from heedful.tasks.translation.config import TranslationConfig
from heedful.tasks.translation.sequence_level import SequenceConfig, log_probabilities, sample_candidates, sequence_objective
from heedful.text.specials import Specials
from heedful.training.metrics_log import read_metrics
from heedful.training.update import Objective

SPECIALS = Specials(pad=PAD, unk=3, start=START, end=END)
TINY_VOCAB = 5  # with special tokens
LIMIT = 3  # tokens of a sentence, the end token included
EVERYTHING = [list(sentence) for length in range(LIMIT) for sentence in product([0, 1, 3, 4], repeat=length)]
SOURCE = torch.tensor([[3, 4, 3, END], [4, END, PAD, PAD]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
REFERENCES = [[4, 3], [3]]
NOTHING = Objective(Loss(torch.zeros(()), torch.ones(())), {})


def small(family: str, vocab: int = TINY_VOCAB) -> SequenceModel:
    torch.manual_seed(3)
    model: SequenceModel = MODELS[family](tiny_config(family, {}), vocab, vocab)
    model.set_turns(WORDS[1], 2)
    return perturb(model).eval()


def exact(model: SequenceModel) -> tuple[Tensor, list[float]]:
    """The expected risk over all sentences, one at a time, and the sum of their probabilities."""
    risks, totals = [], []
    for source, mask, reference in zip(SOURCE, MASK, REFERENCES, strict=True):
        risk, total = torch.zeros(()), torch.zeros(())
        for sentence in EVERYTHING:
            step = model.step(torch.tensor([[START, *sentence]]), model.start(source[mask][None], None, room=0))
            probabilities = model.project(step.hidden)[0].softmax(-1)  # (time, vocab)
            chosen = [*sentence, END][: LIMIT - 1]  # at the limit only the end token is allowed
            probability = torch.stack([probabilities[time, token] for time, token in enumerate(chosen)]).prod()
            risk, total = risk + probability * (1 - gleu(sentence, reference)), total + probability
        risks.append(risk)
        totals.append(float(total.detach()))
    return torch.stack(risks), totals


def gradient(model: SequenceModel, loss: Tensor) -> Tensor:
    """The gradient with respect to all parameters, concatenated."""
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in gradients])


@pytest.mark.parametrize("family", FAMILIES)
def test_minimum_risk_over_everything_is_the_exact_expectation(family: str) -> None:
    model = small(family)
    expected, totals = exact(model)
    assert totals == pytest.approx([1.0, 1.0], abs=1e-5)
    everything = [EVERYTHING, EVERYTHING]
    rewards = torch.tensor([[gleu(sentence, reference) for sentence in EVERYTHING] for reference in REFERENCES])
    scores = log_probabilities(model, (SOURCE, MASK), everything, [LIMIT, LIMIT], SPECIALS)
    risk = risk_loss(scores, rewards, torch.ones_like(rewards).bool(), alpha=1.0)
    assert_close(risk, expected, atol=1e-5, rtol=0)
    assert_close(gradient(model, risk.sum()), gradient(model, expected.sum()), atol=1e-5, rtol=1e-3)


def test_the_mean_over_many_samples_is_the_exact_gradient_within_its_error() -> None:
    """Four thousand times three sentences: few enough that a wrong baseline would show, many enough for a mean."""
    model, config = small("bahdanau"), SequenceConfig(method="reward", samples=3, max_extra=0)
    expected = gradient(model, exact(model)[0][0])
    many = (SOURCE[:1].repeat(1000, 1), None)
    estimates = []
    for _ in range(4):
        candidates = sample_candidates(model, many, [REFERENCES[0]] * 1000, SPECIALS, config)
        assert {len(sentence) for sentences in candidates.sentences for sentence in sentences} == set(range(LIMIT))
        scores = log_probabilities(model, many, candidates.sentences, candidates.limits, SPECIALS)
        estimates.append(gradient(model, reward_loss(scores, candidates.rewards, candidates.times).mean()))
    error = float((torch.stack(estimates).std(0) / 4**0.5).norm() / expected.norm())  # standard error of the estimates
    assert error < 0.06
    assert float((torch.stack(estimates).mean(0) - expected).norm() / expected.norm()) < 2.5 * error


def test_a_sentence_sampled_twice_counts_twice_and_the_baseline_is_the_mean_of_the_others() -> None:
    scores = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(reward_loss(scores, torch.tensor([[0.5, 0.2]]), torch.tensor([[2.0, 1.0]])).sum(), [scores])
    first, second = 0.5 - (0.5 + 0.2) / 2, 0.2 - 0.5
    assert_close(slope, -torch.tensor([[2 * first, second]]) / 3)


def test_risk_ignores_masked_candidates() -> None:
    scores, rewards = torch.tensor([[-1.0, -3.0, 7.0]]), torch.tensor([[0.5, 0.2, 0.9]])
    risk = risk_loss(scores, rewards, torch.tensor([[True, True, False]]), alpha=0.5)
    weights = (0.5 * torch.tensor([-1.0, -3.0])).exp()
    assert_close(risk, (weights * torch.tensor([0.5, 0.8])).sum()[None] / weights.sum())


def batch_of(pairs: Pairs) -> Batch:
    """The pairs, and a row without a target as in batches that are filled up."""
    rows = [[*row, END] for row in pairs.target[:, :4].tolist()] + [[PAD] * 5]
    out = torch.tensor(rows)
    source, mask = torch.cat((pairs.source, pairs.source[:1])), torch.cat((pairs.mask, pairs.mask[:1]))
    return Batch(source, mask, torch.cat((torch.full((4, 1), START), out[:, :-1]), 1), out, 15)


@pytest.mark.parametrize("method", ["reward", "risk"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_family_has_a_gradient(family: str, method: str, pairs: Pairs) -> None:
    options: dict[str, Any] = {"method": method, "samples": 12, "max_extra": 4}
    model = small(family, VOCAB).train()
    objective = sequence_objective(NOTHING, model, batch_of(pairs), SPECIALS, SequenceConfig(**options))
    assert model.training and objective.minimize.total.isfinite()
    gradients = torch.autograd.grad(objective.minimize.total, list(model.parameters()), allow_unused=True)
    named = zip(model.named_parameters(), gradients, strict=True)
    assert [name for (name, _), slope in named if slope is None or not slope.any()] == []
    assert all(slope.isfinite().all() for slope in gradients if slope is not None)
    assert float(objective.report["reward"].count) == 3 * 12  # without the row that has no target
    assert 0 <= float(objective.report["reward"].total) < 3 * 12


@pytest.mark.parametrize("options", [{"method": "reward"}, {"method": "risk", "reference": False}], ids=str)
def test_samples_improve_without_the_reference_among_the_candidates(options: dict[str, Any], pairs: Pairs) -> None:
    model, config = small("bahdanau", VOCAB).train(), SequenceConfig(samples=10, max_extra=2, **options)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    rewards = []
    for _ in range(30):
        objective = sequence_objective(NOTHING, model, batch_of(pairs), SPECIALS, config)
        rewards.append(float(objective.report["reward"].total / objective.report["reward"].count))
        adam.zero_grad()
        torch.autograd.backward(objective.minimize.total)
        adam.step()
    assert sum(rewards[-4:]) > 2 * sum(rewards[:4])


def test_the_reference_is_a_candidate_only_with_risk_and_if_configured() -> None:
    model = small("transformer", VOCAB)
    source, reference = (torch.tensor([[5, 6, END]]), None), [5, 6, 7, 8, 9, 5, 6, 7]
    for config, expected in (
        (SequenceConfig(method="risk", samples=3), True),
        (SequenceConfig(method="risk", samples=3, reference=False), False),
        (SequenceConfig(method="reward", samples=3), False),
    ):
        candidates = sample_candidates(model, source, [reference], SPECIALS, config)
        assert (reference in candidates.sentences[0]) == expected
        assert float(candidates.times.sum()) == 3  # the reference was not sampled


def test_options_without_effect_are_an_error() -> None:
    assert "no effect because task.sequence.method is 'none'" in config_problems(SequenceConfig, samples=4)["samples"]
    problems = config_problems(SequenceConfig, method="reward", alpha=1.0)
    assert "no effect because task.sequence.method is 'reward'" in problems["alpha"]
    assert "greater than or equal to 2" in config_problems(SequenceConfig, method="risk", samples=1)["samples"]
    sentence = config_problems(TranslationConfig, r_drop=1.0, sequence={"method": "risk"})["r_drop"]
    assert sentence == "given 1.0 beside task.sequence.method 'risk'; choose one of the two"


def test_a_trained_run_is_refined_and_logs_its_mean_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, "training.steps=2", "--run", tmp_path / "first") == 0
    refining = (recipe, f"training.init={tmp_path / 'first'}", "task.sequence.method=reward", "task.sequence.samples=3")
    assert heed("train", *refining, "training.steps=2", "--run", tmp_path / "refined") == 0
    records = read_metrics(tmp_path / "refined" / "metrics.jsonl")
    rewards = [record["reward"] for record in records if record["kind"] == "train"]
    assert len(rewards) == 2 and all(0 <= reward < 1 for reward in rewards)
    assert heed("train", *refining, "training.compile=true", "--run", tmp_path / "other") == 2
    assert "training.compile: given true, but task.sequence.method 'reward' searches in every update" in capsys.readouterr().err
