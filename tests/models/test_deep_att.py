"""Deep-Att: fast-forward connections carry gradients, and directions alternate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VOCAB, Pairs, perturb
from torch.testing import assert_close

from heedful.models.deep_att import DeepAtt, DeepAttConfig
from heedful.nn.recurrent import Lstm


def make(**changes: Any) -> DeepAtt:
    config = DeepAttConfig.model_validate({"dim": 16, "dropout": 0.0} | changes)
    return perturb(DeepAtt(config, VOCAB, VOCAB)).eval()


def test_the_default_has_two_columns_of_nine_layers_and_seven_decoder_layers() -> None:
    with torch.device("meta"):
        model = DeepAtt(DeepAttConfig(), 100, 100)
    assert sum(isinstance(part, Lstm) for part in model.encoder.modules()) == 2 * 9  # type: ignore[attr-defined]
    assert sum(isinstance(part, Lstm) for part in model.decoder.modules()) == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(("column", "at", "side"), [(0, 0, "before"), (0, 1, "after"), (1, 0, "after"), (1, 1, "before")])
def test_directions_alternate_between_layers(column: int, at: int, side: str, pairs: Pairs) -> None:
    """The hidden state in the middle of a sentence depends on one side only."""
    model = make(layers=2)
    outputs: list[torch.Tensor] = []
    layer = model.encoder.columns[column].layers[at]  # type: ignore[attr-defined]
    layer.register_forward_hook(lambda module, inputs, out: outputs.append(out[0]))
    x = torch.randn(1, 5, 16)
    links = model.encoder.columns[column]  # type: ignore[attr-defined]
    for place in (None, 0, 4):
        changed = x.clone()
        if place is not None:
            changed[:, place] += 1.0
        if at:  # the layer below depends on both sides, so the layer is called directly
            layer(changed.flip(1) if (at % 2 == 1) != links.back else changed, None, None)
        else:
            links(changed, None)
    is_backward = (at % 2 == 1) != links.back
    plain, first, last = (out.flip(1)[:, 2] if is_backward else out[:, 2] for out in outputs)
    differs = {"before": not torch.equal(plain, first), "after": not torch.equal(plain, last)}
    assert differs == {"before": side == "before", "after": side == "after"}


def test_without_fast_forward_connections_a_layer_uses_only_the_hidden_state_below() -> None:
    torch.manual_seed(0)
    for straight in (True, False):
        link = make(straight=straight, layers=2).encoder.columns[0].links[0]  # type: ignore[attr-defined]
        passed, hidden = torch.randn(2, 1, 3, 16).unbind(0)
        assert torch.equal(link(passed, hidden), link(passed + 1.0, hidden)) is not straight
        assert not torch.equal(link(passed, hidden), link(passed, hidden + 1.0))


def test_fast_forward_connections_carry_gradients_to_the_lowest_layer(pairs: Pairs) -> None:
    """The gradient of layer 1 relative to layer 9 is more than twice as large with them."""

    def gradient_ratio(*, straight: bool) -> float:
        torch.manual_seed(1)
        model = DeepAtt(DeepAttConfig(dim=16, layers=9, decoder_layers=7, straight=straight, dropout=0.0), VOCAB, VOCAB)
        hidden = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).hidden
        hidden.square().sum().backward()  # type: ignore[no-untyped-call]
        sizes = [layer.weight.grad.norm().item() for layer in model.encoder.columns[0].layers]  # type: ignore[attr-defined]
        return float(sizes[0] / sizes[-1])

    assert gradient_ratio(straight=True) > 2 * gradient_ratio(straight=False)


def test_padding_changes_nothing(pairs: Pairs) -> None:
    model = make(layers=3)
    wide = torch.nn.functional.pad(pairs.source, (0, 3))
    mask = torch.nn.functional.pad(pairs.mask, (0, 3))
    batches = (pairs.source, pairs.mask), (wide, mask)
    narrow, padded = (model.step(pairs.target, model.start(*batch, room=0)).hidden for batch in batches)
    assert_close(narrow, padded)
