"""A model without the heads that its gates closed says what it said with them, to the last digits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import Pairs, logits_of, tiny_config, unsettle
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.removal import Kept, best_heads, heads_left, open_heads, shrink
from heedful.models.gpt import GPTConfig
from heedful.models.transformer import TELLING_HEADS_APART, Transformer, TransformerConfig
from heedful.nn.blocks import NORMS
from heedful.nn.gates import add_gates, attentions, gates
from heedful.nn.positions import POSITIONS

EXACT = [name for name in POSITIONS if name not in TELLING_HEADS_APART]
SOME = [  # log_a of the four heads of each attention: closed, between, open
    [-4.0, 0.3, 5.0, -0.7],
    [5.0, -4.0, -4.0, 1.0],
    [-4.0, -4.0, -4.0, 0.2],
    [1.5, 5.0, -4.0, 5.0],
    [-4.0, -4.0, -4.0, -4.0],
    [-9.0, 2.0, 5.0, 5.0],
]


def gated(**changes: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(config_of(**changes), 11, 11)
    unsettle(model)
    add_gates(model)
    for log_a, values in zip(gates(model).values(), SOME, strict=True):
        log_a.data = torch.tensor(values)
    return model.eval()


def config_of(**changes: Any) -> TransformerConfig:
    made = tiny_config("transformer", {"heads": 4} | changes)
    assert isinstance(made, TransformerConfig)
    return made


def smaller(model: Transformer, kept: Kept) -> Transformer:
    """Built from its config alone, then given the weights."""
    left = heads_left(kept, model.config.heads_by_kind)
    config = TransformerConfig(**(model.config.model_dump(exclude_unset=True) | model.config.with_heads(left)))
    made = Transformer(config, 11, 11)
    made.load_state_dict(shrink(model, kept))
    return made.eval()


def one_by_one(model: Transformer, pairs: Pairs) -> Tensor:
    state, said = model.start(pairs.source, pairs.mask, room=pairs.target.shape[1]), []
    for token in pairs.target.unbind(1):
        step = model.step(token[:, None], state)
        state = step.state
        said.append(model.project(step.hidden))
    return torch.cat(said, dim=1)


@pytest.mark.parametrize("position", EXACT)
@pytest.mark.parametrize("norm", NORMS)
def test_without_its_closed_heads_a_model_says_the_same(norm: str, position: str, pairs: Pairs) -> None:
    model = gated(norm=norm, position=position)
    small = smaller(model, open_heads(model))
    assert small.config.head_counts == ((3, 2), (1, 0), (3, 3))  # the order of the model: each decoder layer has both kinds
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    assert_close(one_by_one(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_what_is_left_can_lose_more(pairs: Pairs) -> None:
    model = gated()
    small = smaller(model, open_heads(model))
    kept = {name: list(range(one.heads)) for name, one in attentions(small).items()}
    kept["encoder.0.attention"] = [1]
    again = smaller(small, kept)
    assert again.config.head_counts == ((1, 2), (1, 0), (3, 3))
    gates(model)["encoder.0.attention"].data = torch.tensor([-4.0, -4.0, 5.0, -4.0])
    assert_close(logits_of(again, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)


def test_the_heads_of_highest_score_stay() -> None:
    model = gated()
    scores = {name: torch.tensor([0.1, 0.9, 0.2, 0.3]) * (1 + index) for index, name in enumerate(attentions(model))}
    kept = best_heads(model, scores, {"encoder": 3, "cross": 0})
    assert kept["encoder.0.attention"] == [1] and kept["encoder.1.attention"] == [1, 3]
    assert kept["decoder.0.cross"] == kept["decoder.1.cross"] == []
    assert kept["decoder.0.attention"] == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="given 9 heads to keep of kind 'encoder', but the model has 8"):
        best_heads(model, scores, {"encoder": 9})


@pytest.mark.parametrize("position", TELLING_HEADS_APART)
def test_where_heads_are_told_apart_by_number_only_cross_attention_loses_some(position: str, pairs: Pairs) -> None:
    model = gated(position=position)
    with pytest.raises(ConfigError, match=f"position '{position}' tells heads apart"):
        smaller(model, open_heads(model))
    kept = {name: heads if "cross" in name else [0, 1, 2, 3] for name, heads in open_heads(model).items()}
    small = smaller(model, kept)
    assert small.config.head_counts == ((4, 4), (4, 4), (3, 3))
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)


def test_a_family_with_one_number_of_heads_says_so() -> None:
    with pytest.raises(ConfigError, match="taken out of a GPT, whose config has no number of heads for each layer"):
        _ = GPTConfig().heads_by_kind
