"""Guided alignment: the loss by hand, its effect in training, and invalid options."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from tiny import END, FAMILIES, PAD, START, Variant, make_pairs, tiny_config, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.data.links import JoinedLinks
from heedful.errors import ConfigError
from heedful.models import MODELS
from heedful.nn.losses import Loss
from heedful.nn.model import CROSS
from heedful.nn.source_attention import source_weights
from heedful.runs.config import Run
from heedful.tasks.batches import Batch, fill_up, split_batch
from heedful.tasks.translation.config import TranslationConfig
from heedful.tasks.translation.guided_alignment import add_gold_alignment, choose_layer, guided_loss, make_guide
from heedful.text.specials import Specials
from heedful.training.update import Objective

GUIDED = [name for name in FAMILIES if CROSS in {attention.kind for attention in tiny_model(Variant(name, ())).attentions()}]
UNGUIDED = [name for name in FAMILIES if name not in GUIDED]
CONFIG = TranslationConfig(guided_alignment=0.5)


def test_the_loss_by_hand() -> None:
    """Two links share the weight of a token; a token without links adds nothing; only the given heads are guided."""
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.9, 0.1, 0.0], [0.9, 0.1, 0.0]]]])
    gold = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    alone = guided_loss(weights, gold, [0])
    assert float(alone.total) == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2) and int(alone.count) == 1
    both = -(math.log(0.7) + math.log(0.175)) / 2
    assert float(guided_loss(weights, gold, [0, 1]).total) == pytest.approx(both)


def test_a_link_to_a_masked_token_has_a_finite_loss_and_gradient() -> None:
    weights = torch.tensor([[[[1.0, 0.0]]]], requires_grad=True)
    loss = guided_loss(weights, torch.tensor([[[0.0, 1.0]]]), [0])
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert loss.total.isfinite() and weights.grad is not None and bool(weights.grad.isfinite().all())


def some_batch() -> Batch:
    """Target token t is aligned with source token t, up to the shorter length."""
    pairs = make_pairs()
    gold = torch.zeros(3, 7, 6)
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        gold[row, range(length), range(length)] = 1.0
    target_out = torch.cat((pairs.target[:, 1:], torch.full((3, 1), END)), dim=1)
    return Batch(pairs.source, pairs.mask, pairs.target, target_out, 21, gold)


def objective(model: Any, batch: Batch) -> Objective:
    step = model.forced(batch.source, batch.source_mask, batch.target_in)
    logits = model.project(step.hidden).flatten(0, 1)
    total = nn.functional.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, reduction="sum")
    plain = Loss(total, (batch.target_out != PAD).sum())
    return Objective(plain, {"loss": plain})


@pytest.mark.parametrize("family", GUIDED)
def test_the_added_loss_is_that_of_the_recorded_weights(family: str) -> None:
    model, batch = tiny_model(Variant(family, ())), some_batch()
    assert batch.gold is not None
    guide = make_guide(model, CONFIG)
    before = objective(model, batch)
    after = guide.add_loss(lambda: objective(model, batch), batch.gold)
    layers = source_weights(model, batch.source, batch.source_mask, batch.target_in)
    expected = guided_loss(layers[choose_layer(sorted(layers), None)], batch.gold, [0])
    assert_close(after.report["alignment"].total, expected.total)
    assert_close(after.minimize.total, before.minimize.total + 0.5 * expected.total)
    assert torch.equal(after.report["loss"].total, before.report["loss"].total)
    assert not guide.hook_point.has_hooks  # the hook is removed


@pytest.mark.parametrize("family", GUIDED)
def test_a_guided_head_learns_the_alignment(family: str) -> None:
    torch.manual_seed(1)
    model = MODELS[family](tiny_config(family, {}), 11, 11).eval()  # without dropout
    batch = some_batch()
    assert batch.gold is not None
    guide = make_guide(model, TranslationConfig(guided_alignment=5.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        result = guide.add_loss(lambda: objective(model, batch), batch.gold)
        optimizer.zero_grad()
        (result.minimize.total / result.minimize.count).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(result.report["alignment"].total.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_two_passes_over_a_batch_count_as_one() -> None:
    """As in R-Drop: the batch twice in one forward pass."""
    model, batch = tiny_model(Variant("transformer", ())), some_batch()
    assert batch.gold is not None
    guide = make_guide(model, CONFIG)
    twice = batch.each(lambda part: part.repeat(2, *[1] * (part.dim() - 1)))
    once = guide.add_loss(lambda: objective(model, batch), batch.gold).report["alignment"]
    again = guide.add_loss(lambda: objective(model, twice), batch.gold).report["alignment"]
    assert_close(again.total, once.total)
    assert float(again.count) == float(once.count) == 13


class GivenLinks(JoinedLinks):
    """Links given as lists."""

    def __init__(self, links: list[list[tuple[int, int]]]) -> None:
        self.links = links

    def of(self, index: int) -> NDArray[np.uint32]:
        return np.array(self.links[index], np.uint32).reshape(-1, 2)


def test_the_links_of_a_pair_are_in_its_row() -> None:
    links = [[(0, 1), (2, 1)], [], [(3, 0)]]
    gold = not_none(add_gold_alignment(some_batch(), GivenLinks(links), np.array([2, 1, 0])).gold)
    assert gold.nonzero().tolist() == [[0, 0, 3], [2, 1, 0], [2, 1, 2]]  # row, target token, source token


def test_gold_alignments_are_split_and_padded_with_their_batch() -> None:
    batch, specials = some_batch(), Specials(pad=PAD, start=START, end=END, unk=3)
    assert batch.gold is not None
    parts = split_batch(batch, 2, PAD)
    assert torch.equal(torch.cat([not_none(part.gold) for part in parts]), batch.gold)
    filled = fill_up(batch, 64, (8, 8), specials, specials)
    assert not_none(filled.gold).shape == (8, 8, 8) == (*filled.target_in.shape, filled.source.shape[1])
    assert torch.equal(not_none(filled.gold)[:3, :7, :6], batch.gold) and not_none(filled.gold).sum() == batch.gold.sum()


def not_none(gold: Tensor | None) -> Tensor:
    assert gold is not None
    return gold


@pytest.mark.parametrize("family", UNGUIDED)
def test_a_model_without_cross_attention_is_an_error(family: str) -> None:
    with pytest.raises(ConfigError, match="this model has no cross-attention"):
        make_guide(tiny_model(Variant(family, ())), CONFIG)


def test_an_unknown_layer_or_head_is_an_error() -> None:
    model = tiny_model(Variant("transformer", ()))
    with pytest.raises(ConfigError, match="given 2, but the layers with cross-attention are: 0, 1"):
        make_guide(model, TranslationConfig(guided_alignment=0.5, guided_layer=2))
    guide, batch = make_guide(model, TranslationConfig(guided_alignment=0.5, guided_heads=(0, 7))), some_batch()
    with pytest.raises(ConfigError, match=r"given \[0, 7\], but the guided layer has 2 heads"):
        guide.add_loss(lambda: objective(model, batch), not_none(batch.gold))


def test_the_default_layer_is_the_second_to_last() -> None:
    assert [choose_layer(range(n), None) for n in (1, 2, 6)] == [0, 0, 4]
    assert choose_layer(range(6), 5) == 5


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"data": {"builtin": True}, "training": {"compile": True}}, "training.compile"),
        ({"data": {"builtin": True}, "training": {"recompute": True}}, "training.recompute"),
        ({"data": {"builtin": True}, "tokenizer": {"kind": "bpe", "dropout": 0.1}}, "tokenizer.dropout"),
        ({"data": {"train": {"tsv": "a"}, "valid": {"tsv": "b"}}}, "data.train"),
        ({"data": {"folder": "a", "languages": ["en", "fr"]}}, "data.train"),
        ({"data": {"train": {"tsv": "a", "alignment": "c"}, "valid": {"tsv": "b", "alignment": "c"}}}, "data.valid"),
        ({"data": {"train": {"tsv": "a", "alignment": "c"}, "valid": {"tsv": "b"}}, "task": {}}, "data.train"),
        ({"data": {"builtin": True}, "task": {"guided_layer": 1}}, "guided_layer"),
        ({"data": {"train": {"builtin": True, "count": 9, "alignment": "c"}, "valid": {"tsv": "b"}}}, "alignment would have"),
    ],
)
def test_conflicting_options_are_an_error(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        Run.model_validate({"task": {"guided_alignment": 0.1}} | changes)


def test_compatible_options_are_accepted() -> None:
    corpora = {"train": {"tsv": "a", "alignment": str(Path("c"))}, "valid": {"tsv": "b"}}
    assert Run.model_validate(
        {"task": {"guided_alignment": 0.1, "r_drop": 1.0}, "data": corpora, "training": {"cuda_graphs": True}}
    )
