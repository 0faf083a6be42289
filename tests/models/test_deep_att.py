"""Deep-Att: the straight way carries what the recurrence forgets, and directions take turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VOCAB, Pairs, unsettle
from torch.testing import assert_close

from heedful.models.deep_att import DeepAtt, DeepAttConfig
from heedful.nn.recurrent import Lstm


def make(**changes: Any) -> DeepAtt:
    config = DeepAttConfig.model_validate({"dim": 16, "dropout": 0.0} | changes)
    return unsettle(DeepAtt(config, VOCAB, VOCAB)).eval()


def test_the_paper_has_two_columns_of_nine_and_seven_above() -> None:
    with torch.device("meta"):
        model = DeepAtt(DeepAttConfig(), 100, 100)
    assert sum(isinstance(part, Lstm) for part in model.encoder.modules()) == 2 * 9  # type: ignore[attr-defined]
    assert sum(isinstance(part, Lstm) for part in model.decoder.modules()) == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(("column", "at", "seen"), [(0, 0, "before"), (0, 1, "after"), (1, 0, "after"), (1, 1, "before")])
def test_layers_read_in_turn_from_the_left_and_from_the_right(column: int, at: int, seen: str, pairs: Pairs) -> None:
    """What the layer says of the middle of a sentence depends on one side of it."""
    model = make(layers=2)
    said: list[torch.Tensor] = []
    layer = model.encoder.columns[column].layers[at]  # type: ignore[attr-defined]
    layer.register_forward_hook(lambda module, given, out: said.append(out[0]))
    given = torch.randn(1, 5, 16)
    links = model.encoder.columns[column]  # type: ignore[attr-defined]
    for place in (None, 0, 4):
        changed = given.clone()
        if place is not None:
            changed[:, place] += 1.0
        if at:  # what comes from the layer below sees both sides: only the straight way is changed
            layer(changed.flip(1) if (at % 2 == 1) != links.back else changed, None, None)
        else:
            links(changed, None)
    turned = (at % 2 == 1) != links.back
    plain, first, last = (one.flip(1)[:, 2] if turned else one[:, 2] for one in said)
    differs = {"before": not torch.equal(plain, first), "after": not torch.equal(plain, last)}
    assert differs == {"before": seen == "before", "after": seen == "after"}


def test_without_the_straight_way_a_layer_takes_only_what_the_one_below_said() -> None:
    torch.manual_seed(0)
    for straight in (True, False):
        link = make(straight=straight, layers=2).encoder.columns[0].links[0]  # type: ignore[attr-defined]
        passed, said = torch.randn(2, 1, 3, 16).unbind(0)
        assert torch.equal(link(passed, said), link(passed + 1.0, said)) is not straight
        assert not torch.equal(link(passed, said), link(passed, said + 1.0))


def test_gradients_reach_the_lowest_of_many_layers_along_the_straight_way(pairs: Pairs) -> None:
    """How much of the gradient of layer 9 arrives at layer 1: more than twice as much with the straight way."""

    def arrives(*, straight: bool) -> float:
        torch.manual_seed(1)
        model = DeepAtt(DeepAttConfig(dim=16, layers=9, decoder_layers=7, straight=straight, dropout=0.0), VOCAB, VOCAB)
        hidden = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).hidden
        hidden.square().sum().backward()  # type: ignore[no-untyped-call]
        sizes = [layer.weight.grad.norm().item() for layer in model.encoder.columns[0].layers]  # type: ignore[attr-defined]
        return float(sizes[0] / sizes[-1])

    assert arrives(straight=True) > 2 * arrives(straight=False)


def test_padding_changes_nothing(pairs: Pairs) -> None:
    model = make(layers=3)
    wide = torch.nn.functional.pad(pairs.source, (0, 3))
    mask = torch.nn.functional.pad(pairs.mask, (0, 3))
    given = (pairs.source, pairs.mask), (wide, mask)
    narrow, padded = (model.step(pairs.target, model.start(*one, room=0)).hidden for one in given)
    assert_close(narrow, padded)
