"""A model pruned of the heads with closed gates computes the same logits."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import torch
from tiny import Pairs, logits_of, perturb, tiny_config
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.measures.head_pruning import Kept, best_heads, heads_left, open_heads, shrink
from heedful.models.family import PER_HEAD_POSITIONS
from heedful.models.gpt import GPT, GPTConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.blocks import NORMS
from heedful.nn.gates import add_gates, gates, prunable_attentions
from heedful.nn.positions import POSITIONS

EXACT = [name for name in POSITIONS if name not in PER_HEAD_POSITIONS]
SOME = [  # log_a of the four heads of each attention: closed, partly open, open
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
    perturb(model)
    add_gates(model)
    for log_a, values in zip(gates(model).values(), SOME, strict=True):
        log_a.data = torch.tensor(values)
    return model.eval()


def config_of(**changes: Any) -> TransformerConfig:
    made = tiny_config("transformer", {"heads": 4} | changes)
    assert isinstance(made, TransformerConfig)
    return made


def gated_gpt(**changes: Any) -> Any:
    torch.manual_seed(3)
    config = tiny_config("gpt", {"heads": 4, "layers": 3} | changes)
    assert isinstance(config, GPTConfig)
    model = perturb(GPT(config, 11, 11))
    add_gates(model)
    for log_a, values in zip(gates(model).values(), SOME[2:5], strict=True):
        log_a.data = torch.tensor(values)
    return model.eval()


Headed = TypeVar("Headed", Transformer, GPT)


def smaller(model: Headed, kept: Kept) -> Headed:
    """Build the pruned model from its config and load the weights."""
    left = heads_left(model, kept, model.config.heads_by_kind)
    config = type(model.config)(**(model.config.model_dump(exclude_unset=True) | model.config.with_heads(left)))
    made = type(model)(config, 11, 11)
    made.load_state_dict(shrink(model, kept))
    return made.eval()


def step_by_step(model: Any, pairs: Pairs) -> Tensor:
    state, logits = model.start(pairs.source, pairs.mask, room=pairs.target.shape[1]), []
    for token in pairs.target.unbind(1):
        step = model.step(token[:, None], state)
        state = step.state
        logits.append(model.project(step.hidden))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("position", EXACT)
@pytest.mark.parametrize("norm", NORMS)
def test_a_model_pruned_of_closed_heads_has_the_same_logits(norm: str, position: str, pairs: Pairs) -> None:
    model = gated(norm=norm, position=position)
    small = smaller(model, open_heads(model))
    assert small.config.head_counts == ((3, 2), (1, 0), (3, 3))  # the order of the model: each decoder layer has both kinds
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    assert_close(step_by_step(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_a_pruned_model_can_be_pruned_again(pairs: Pairs) -> None:
    model = gated()
    small = smaller(model, open_heads(model))
    kept = {name: list(range(one.heads)) for name, one in prunable_attentions(small).items()}
    kept["encoder.0.self_attention"] = [1]
    again = smaller(small, kept)
    assert again.config.head_counts == ((1, 2), (1, 0), (3, 3))
    gates(model)["encoder.0.self_attention"].data = torch.tensor([-4.0, -4.0, 5.0, -4.0])
    assert_close(logits_of(again, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)


def test_the_heads_of_highest_score_are_kept() -> None:
    model = gated()
    scores = {name: torch.tensor([0.1, 0.9, 0.2, 0.3]) * (1 + index) for index, name in enumerate(prunable_attentions(model))}
    kept = best_heads(model, scores, {"encoder": 3, "cross": 0})
    assert kept["encoder.0.self_attention"] == [1] and kept["encoder.1.self_attention"] == [1, 3]
    assert kept["decoder.0.cross_attention"] == kept["decoder.1.cross_attention"] == []
    assert kept["decoder.0.self_attention"] == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="given 9 heads to keep of kind 'encoder', but the model has 8"):
        best_heads(model, scores, {"encoder": 9})


@pytest.mark.parametrize("position", PER_HEAD_POSITIONS)
def test_with_per_head_positions_only_cross_attention_can_be_pruned(position: str, pairs: Pairs) -> None:
    model = gated(position=position)
    with pytest.raises(ConfigError, match=f"position '{position}' depends on the index of a head"):
        smaller(model, open_heads(model))
    kept = {name: heads if "cross" in name else [0, 1, 2, 3] for name, heads in open_heads(model).items()}
    small = smaller(model, kept)
    assert small.config.head_counts == ((4, 4), (4, 4), (3, 3))
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("position", EXACT)
@pytest.mark.parametrize(
    "changes", [{"norm": "pre"}, {"norm": "post", "reach": ("full", "local", "local"), "block": 4}], ids=str
)
def test_a_pruned_decoder_only_model_has_the_same_logits(changes: dict[str, Any], position: str, pairs: Pairs) -> None:
    model = gated_gpt(position=position, **changes)
    small = smaller(model, open_heads(model))
    assert small.config.head_counts == (1, 3, 0)
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    assert_close(step_by_step(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)
    alone = pairs._replace(source=pairs.source[:, :0], mask=pairs.mask[:, :0])  # as a language model, which reads nothing
    assert_close(logits_of(small, alone), logits_of(model, alone), atol=1e-5, rtol=0)
    assert_close(step_by_step(small, alone), logits_of(model, alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"position": "alibi"}, "position 'alibi' depends on the index of a head"),
        ({"reach": ("full", "compressed", "full")}, "layer 1 has compressed attention, which mixes its heads"),
    ],
    ids=str,
)
def test_heads_of_shared_layers_cannot_be_pruned(changes: dict[str, Any], sentence: str) -> None:
    model = gated_gpt(**changes)
    with pytest.raises(ConfigError, match=sentence):
        smaller(model, open_heads(model))


def test_compressed_attention_can_be_kept(pairs: Pairs) -> None:
    model = gated_gpt(reach=("full", "compressed", "full"))
    small = smaller(model, open_heads(model) | {"layers.1.self_attention": [0, 1, 2, 3]})
    assert small.config.head_counts == (1, 4, 0)
    assert_close(logits_of(small, pairs), logits_of(model, pairs), atol=1e-5, rtol=0)


def test_a_family_without_prunable_heads_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match="heads of family 'convs2s' cannot be pruned, since its config has no number of heads"
    ):
        _ = tiny_config("convs2s", {}).heads_by_kind  # type: ignore[attr-defined]
