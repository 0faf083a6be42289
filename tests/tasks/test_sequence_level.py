"""Sentence-level gradients are those of the exact expectation, found by writing down everything that can be said."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import END, PAD, SPEAKING, START, VOCAB, Pairs, Speaker, refused, tiny_config, unsettle
from torch import Tensor
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.evaluation.gleu import gleu
from heedful.models import MODELS
from heedful.nn.losses import Loss
from heedful.nn.sequence_losses import reward_loss, risk_loss
from heedful.tasks.batches import Batch
from heedful.tasks.sequence_level import SequenceConfig, log_probabilities, sample_candidates, sequence_objective
from heedful.tasks.translation import TranslationConfig
from heedful.text.specials import Specials
from heedful.training.metrics_log import read_metrics
from heedful.training.update import Objective

SPECIALS = Specials(pad=PAD, unk=3, start=START, end=END)
FEW = 5  # words of a tiny vocabulary, the special ones counted
LIMIT = 3  # tokens of a sentence, the end counted
EVERYTHING = [list(said) for length in range(LIMIT) for said in product([0, 1, 3, 4], repeat=length)]
SOURCE = torch.tensor([[3, 4, 3, END], [4, END, PAD, PAD]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
REFERENCES = [[4, 3], [3]]
NOTHING = Objective(Loss(torch.zeros(()), torch.ones(())), {})


def small(family: str, vocab: int = FEW) -> Speaker:
    torch.manual_seed(3)
    model: Speaker = MODELS[family](tiny_config(family, {}), vocab, vocab)
    return unsettle(model).eval()


def exact(model: Speaker) -> tuple[Tensor, list[float]]:
    """The mean risk of all that can be said, one sentence after another, and what the probabilities add up to."""
    risks, totals = [], []
    for source, mask, reference in zip(SOURCE, MASK, REFERENCES, strict=True):
        risk, total = torch.zeros(()), torch.zeros(())
        for said in EVERYTHING:
            step = model.step(torch.tensor([[START, *said]]), model.start(source[mask][None], None, room=0))
            chances = model.project(step.hidden)[0].softmax(-1)  # (time, vocab)
            chosen = [*said, END][: LIMIT - 1]  # after as many there is nothing left but the end
            likely = torch.stack([chances[time, token] for time, token in enumerate(chosen)]).prod()
            risk, total = risk + likely * (1 - gleu(said, reference)), total + likely
        risks.append(risk)
        totals.append(float(total.detach()))
    return torch.stack(risks), totals


def slopes(model: Speaker, loss: Tensor) -> Tensor:
    """The gradient by all parameters, one behind the other."""
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([slope.flatten() for slope in found])


@pytest.mark.parametrize("family", SPEAKING)
def test_minimum_risk_over_everything_is_the_exact_expectation(family: str) -> None:
    model = small(family)
    expected, totals = exact(model)
    assert totals == pytest.approx([1.0, 1.0], abs=1e-5)
    everything = [EVERYTHING, EVERYTHING]
    rewards = torch.tensor([[gleu(said, reference) for said in EVERYTHING] for reference in REFERENCES])
    read = log_probabilities(model, (SOURCE, MASK), everything, [LIMIT, LIMIT], SPECIALS)
    found = risk_loss(read, rewards, torch.ones_like(rewards).bool(), alpha=1.0)
    assert_close(found, expected, atol=1e-5, rtol=0)
    assert_close(slopes(model, found.sum()), slopes(model, expected.sum()), atol=1e-5, rtol=1e-3)


def test_the_mean_over_many_draws_is_the_exact_gradient_within_its_error() -> None:
    """Three sentences a time, four thousand times: few enough that a wrong baseline would show, many enough for a mean."""
    model, config = small("bahdanau"), SequenceConfig(method="reward", samples=3, max_extra=0)
    expected = slopes(model, exact(model)[0][0])
    many = (SOURCE[:1].repeat(1000, 1), None)
    estimates = []
    for _ in range(4):
        candidates = sample_candidates(model, many, [REFERENCES[0]] * 1000, SPECIALS, config)
        assert {len(said) for some in candidates.sentences for said in some} == set(range(LIMIT))
        read = log_probabilities(model, many, candidates.sentences, candidates.limits, SPECIALS)
        estimates.append(slopes(model, reward_loss(read, candidates.rewards, candidates.times).mean()))
    error = float((torch.stack(estimates).std(0) / 4**0.5).norm() / expected.norm())  # as the estimates tell it
    assert error < 0.06
    assert float((torch.stack(estimates).mean(0) - expected).norm() / expected.norm()) < 2.5 * error


def test_a_sentence_drawn_twice_counts_twice_and_the_baseline_is_the_mean_of_the_others() -> None:
    read = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(reward_loss(read, torch.tensor([[0.5, 0.2]]), torch.tensor([[2.0, 1.0]])).sum(), [read])
    first, second = 0.5 - (0.5 + 0.2) / 2, 0.2 - 0.5
    assert_close(slope, -torch.tensor([[2 * first, second]]) / 3)


def test_risk_knows_each_candidate_once_whatever_stands_in_empty_places() -> None:
    read, rewards = torch.tensor([[-1.0, -3.0, 7.0]]), torch.tensor([[0.5, 0.2, 0.9]])
    found = risk_loss(read, rewards, torch.tensor([[True, True, False]]), alpha=0.5)
    likely = (0.5 * torch.tensor([-1.0, -3.0])).exp()
    assert_close(found, (likely * torch.tensor([0.5, 0.8])).sum()[None] / likely.sum())


def batch_of(pairs: Pairs) -> Batch:
    """The words and their ends, and a row without a target as filled up batches have."""
    rows = [[*row, END] for row in pairs.target[:, :4].tolist()] + [[PAD] * 5]
    out = torch.tensor(rows)
    source, mask = torch.cat((pairs.source, pairs.source[:1])), torch.cat((pairs.mask, pairs.mask[:1]))
    return Batch(source, mask, torch.cat((torch.full((4, 1), START), out[:, :-1]), 1), out, 15)


@pytest.mark.parametrize("method", ["reward", "risk"])
@pytest.mark.parametrize("family", SPEAKING)
def test_every_parameter_of_every_family_learns_from_sentences(family: str, method: str, pairs: Pairs) -> None:
    options: dict[str, Any] = {"method": method, "samples": 12, "max_extra": 4}
    model = small(family, VOCAB).train()
    told = sequence_objective(NOTHING, model, batch_of(pairs), SPECIALS, SequenceConfig(**options))
    assert model.training and told.minimize.total.isfinite()
    found = torch.autograd.grad(told.minimize.total, list(model.parameters()), allow_unused=True)
    named = zip(model.named_parameters(), found, strict=True)
    assert [name for (name, _), slope in named if slope is None or not slope.any()] == []
    assert all(slope.isfinite().all() for slope in found if slope is not None)
    assert float(told.report["reward"].count) == 3 * 12  # the row without a target is not asked
    assert 0 <= float(told.report["reward"].total) < 3 * 12


@pytest.mark.parametrize("options", [{"method": "reward"}, {"method": "risk", "reference": False}], ids=str)
def test_what_is_said_becomes_better_without_having_seen_the_reference(options: dict[str, Any], pairs: Pairs) -> None:
    model, config = small("bahdanau", VOCAB).train(), SequenceConfig(samples=10, max_extra=2, **options)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    rewards = []
    for _ in range(30):
        told = sequence_objective(NOTHING, model, batch_of(pairs), SPECIALS, config)
        rewards.append(float(told.report["reward"].total / told.report["reward"].count))
        adam.zero_grad()
        torch.autograd.backward(told.minimize.total)
        adam.step()
    assert sum(rewards[-4:]) > 2 * sum(rewards[:4])


def test_the_reference_is_a_candidate_of_risk_alone_and_only_if_asked_for() -> None:
    model = small("transformer", VOCAB)
    read, reference = (torch.tensor([[5, 6, END]]), None), [5, 6, 7, 8, 9, 5, 6, 7]
    for config, is_there in (
        (SequenceConfig(method="risk", samples=3), True),
        (SequenceConfig(method="risk", samples=3, reference=False), False),
        (SequenceConfig(method="reward", samples=3), False),
    ):
        candidates = sample_candidates(model, read, [reference], SPECIALS, config)
        assert (reference in candidates.sentences[0]) == is_there
        assert float(candidates.times.sum()) == 3  # it was not drawn


def test_what_cannot_be_meant_is_refused() -> None:
    assert "no effect because task.sequence.method is 'none'" in refused(SequenceConfig, samples=4)["samples"]
    assert "no effect because task.sequence.method is 'reward'" in refused(SequenceConfig, method="reward", alpha=1.0)["alpha"]
    assert "greater than or equal to 2" in refused(SequenceConfig, method="risk", samples=1)["samples"]
    sentence = refused(TranslationConfig, r_drop=1.0, sequence={"method": "risk"})["r_drop"]
    assert sentence == "given 1.0 beside task.sequence.method 'risk'; choose one of the two"


def test_a_trained_run_is_refined_and_tells_its_mean_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, "training.steps=2", "--run", tmp_path / "first") == 0
    refining = (recipe, f"training.init={tmp_path / 'first'}", "task.sequence.method=reward", "task.sequence.samples=3")
    assert heed("train", *refining, "training.steps=2", "--run", tmp_path / "refined") == 0
    records = read_metrics(tmp_path / "refined" / "metrics.jsonl")
    rewards = [record["reward"] for record in records if record["kind"] == "train"]
    assert len(rewards) == 2 and all(0 <= reward < 1 for reward in rewards)
    assert heed("train", *refining, "training.compile=true", "--run", tmp_path / "other") == 2
    assert "training.compile: given true, but task.sequence.method 'reward' searches in every update" in capsys.readouterr().err
