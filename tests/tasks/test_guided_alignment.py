"""Guided alignment: the loss by hand, that it teaches, that it leaves the rest alone, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from tiny import END, PAD, SPEAKING, START, Variant, make_pairs, tiny_config, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.config import Run
from heedful.data.links import JoinedLinks
from heedful.errors import ConfigError
from heedful.inspection.alignment import cross_weights
from heedful.inspection.attention_maps import attentions
from heedful.models import MODELS
from heedful.nn.losses import Loss
from heedful.tasks.batches import Batch, fill_up, split_batch
from heedful.tasks.guided_alignment import guide_of, guided_layer, guided_loss, with_gold
from heedful.tasks.translation import TranslationConfig
from heedful.text.specials import Specials
from heedful.training.update import Objective

GUIDED = [name for name in SPEAKING if any(kind.name == "cross" for kind in attentions(tiny_model(Variant(name, ()))).values())]
UNGUIDED = [name for name in SPEAKING if name not in GUIDED]
CONFIG = TranslationConfig(guided_alignment=0.5)


def test_the_loss_by_hand() -> None:
    """Two links share a piece's look; a piece without links asks nothing; only the named heads are guided."""
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.9, 0.1, 0.0], [0.9, 0.1, 0.0]]]])
    gold = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    alone = guided_loss(weights, gold, [0])
    assert float(alone.total) == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2) and int(alone.count) == 1
    both = -(math.log(0.7) + math.log(0.175)) / 2
    assert float(guided_loss(weights, gold, [0, 1]).total) == pytest.approx(both)


def test_a_link_to_what_is_masked_costs_much_but_not_everything() -> None:
    weights = torch.tensor([[[[1.0, 0.0]]]], requires_grad=True)
    loss = guided_loss(weights, torch.tensor([[[0.0, 1.0]]]), [0])
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert loss.total.isfinite() and weights.grad is not None and bool(weights.grad.isfinite().all())


def some_batch() -> Batch:
    """Target piece t is linked with source piece t, as far as both go."""
    pairs = make_pairs()
    gold = torch.zeros(3, 7, 6)
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        gold[row, range(length), range(length)] = 1.0
    target_out = torch.cat((pairs.target[:, 1:], torch.full((3, 1), END)), dim=1)
    return Batch(pairs.source, pairs.mask, pairs.target, target_out, 21, gold)


def objective(model: Any, batch: Batch) -> Objective:
    step = model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0))
    logits = model.project(step.hidden).flatten(0, 1)
    total = nn.functional.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, reduction="sum")
    plain = Loss(total, (batch.target_out != PAD).sum())
    return Objective(plain, {"loss": plain})


@pytest.mark.parametrize("family", GUIDED)
def test_what_is_added_is_the_loss_of_the_weights_that_recording_hears(family: str) -> None:
    model, batch = tiny_model(Variant(family, ())), some_batch()
    assert batch.gold is not None
    guide = guide_of(model, CONFIG)
    before = objective(model, batch)
    after = guide.added(lambda: objective(model, batch), batch.gold)
    layers = cross_weights(model, batch.source, batch.source_mask, batch.target_in)
    expected = guided_loss(layers[guided_layer(sorted(layers), None)], batch.gold, [0])
    assert_close(after.report["alignment"].total, expected.total)
    assert_close(after.minimize.total, before.minimize.total + 0.5 * expected.total)
    assert torch.equal(after.report["loss"].total, before.report["loss"].total)
    assert not guide.tap.has_hooks  # nobody listens any more


@pytest.mark.parametrize("family", GUIDED)
def test_a_guided_head_learns_to_look_where_it_is_told(family: str) -> None:
    torch.manual_seed(1)
    model = MODELS[family](tiny_config(family, {}), 11, 11).eval()  # without dropout
    batch = some_batch()
    assert batch.gold is not None
    guide = guide_of(model, TranslationConfig(guided_alignment=5.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen = []
    for _ in range(30):
        found = guide.added(lambda: objective(model, batch), batch.gold)
        optimizer.zero_grad()
        (found.minimize.total / found.minimize.count).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        seen.append(float(found.report["alignment"].total.detach()))
    assert seen[-1] < 0.3 * seen[0]


def test_passes_over_the_same_batch_count_as_one() -> None:
    """As R-Drop does it: the batch twice in one pass."""
    model, batch = tiny_model(Variant("transformer", ())), some_batch()
    assert batch.gold is not None
    guide = guide_of(model, CONFIG)
    twice = batch.each(lambda part: part.repeat(2, *[1] * (part.dim() - 1)))
    once = guide.added(lambda: objective(model, batch), batch.gold).report["alignment"]
    again = guide.added(lambda: objective(model, twice), batch.gold).report["alignment"]
    assert_close(again.total, once.total)
    assert float(again.count) == float(once.count) == 13


class Known(JoinedLinks):
    """Links as they are told."""

    def __init__(self, told: list[list[tuple[int, int]]]) -> None:
        self.told = told

    def of(self, index: int) -> NDArray[np.uint32]:
        return np.array(self.told[index], np.uint32).reshape(-1, 2)


def test_every_link_of_a_pair_stands_in_its_own_row() -> None:
    told = [[(0, 1), (2, 1)], [], [(3, 0)]]
    gold = one(with_gold(some_batch(), Known(told), np.array([2, 1, 0])).gold)
    assert gold.nonzero().tolist() == [[0, 0, 3], [2, 1, 0], [2, 1, 2]]  # row, piece to be said, piece of the source


def test_the_gold_follows_its_rows_when_a_batch_is_cut_and_when_it_is_filled_up() -> None:
    batch, specials = some_batch(), Specials(pad=PAD, start=START, end=END, unk=3)
    assert batch.gold is not None
    parts = split_batch(batch, 2, PAD)
    assert torch.equal(torch.cat([one(part.gold) for part in parts]), batch.gold)
    filled = fill_up(batch, 64, 8, specials, specials)
    assert one(filled.gold).shape == (8, 8, 8) == (*filled.target_in.shape, filled.source.shape[1])
    assert torch.equal(one(filled.gold)[:3, :7, :6], batch.gold) and one(filled.gold).sum() == batch.gold.sum()


def one(gold: Tensor | None) -> Tensor:
    assert gold is not None
    return gold


@pytest.mark.parametrize("family", UNGUIDED)
def test_a_model_that_does_not_look_across_cannot_be_guided(family: str) -> None:
    with pytest.raises(ConfigError, match="no attention from the target to the source"):
        guide_of(tiny_model(Variant(family, ())), CONFIG)


def test_a_layer_or_head_that_is_not_there_is_refused() -> None:
    model = tiny_model(Variant("transformer", ()))
    with pytest.raises(ConfigError, match="given 2, but this model looks at its source in layers: 0, 1"):
        guide_of(model, TranslationConfig(guided_alignment=0.5, guided_layer=2))
    guide, batch = guide_of(model, TranslationConfig(guided_alignment=0.5, guided_heads=(0, 7))), some_batch()
    with pytest.raises(ConfigError, match=r"given \[0, 7\], but the guided layer has 2 heads"):
        guide.added(lambda: objective(model, batch), one(batch.gold))


def test_the_last_layer_but_one_is_guided_unless_another_is_named() -> None:
    assert [guided_layer(range(n), None) for n in (1, 2, 6)] == [0, 0, 4]
    assert guided_layer(range(6), 5) == 5


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
def test_what_cannot_work_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        Run.model_validate({"task": {"guided_alignment": 0.1}} | changes)


def test_what_can_work_is_not() -> None:
    corpora = {"train": {"tsv": "a", "alignment": str(Path("c"))}, "valid": {"tsv": "b"}}
    assert Run.model_validate(
        {"task": {"guided_alignment": 0.1, "r_drop": 1.0}, "data": corpora, "training": {"capture": True}}
    )
