"""What every family in `ENCODERS` guarantees: hidden states of a text that depend on all of it and on no padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import ENCODER_VARIANTS, PAD, WORDS, by_family, tiny_encoder
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn.attention import NoHeads
from heedful.nn.hooks import ablate, hook_points, record
from heedful.nn.model import SELF, EncoderModel
from heedful.nn.sequence_layers import Convolution
from heedful.nn.sequence_layers.recurrent import Recurrent

LENGTHS = torch.tensor([7, 3, 5])


TOKEN_ENCODERS = [variant for variant in ENCODER_VARIANTS if tiny_encoder(variant).config.sentence_grid is None]


@pytest.fixture(params=by_family(TOKEN_ENCODERS, tiny_encoder), ids=str)
def encoder(request: pytest.FixtureRequest) -> Any:
    """Every encoder-only family of token sequences; the test is called with each variant, shared: do not change it."""
    return request.param


@pytest.fixture
def tokens() -> Tensor:
    """Three texts of 7, 3 and 5 tokens."""
    drawn = torch.randint(WORDS.start, WORDS.stop, (3, 7), generator=torch.Generator().manual_seed(7))
    return drawn.masked_fill(torch.arange(7) >= LENGTHS[:, None], PAD)


@pytest.fixture
def mask() -> Tensor:
    return torch.arange(7) < LENGTHS[:, None]


@torch.inference_mode()
def test_padding_and_other_rows_change_nothing(encoder: EncoderModel, tokens: Tensor, mask: Tensor) -> None:
    batched = encoder.encode(tokens, mask)
    assert batched.shape == (3, 7, encoder.config.dim)
    wider = encoder.encode(functional.pad(tokens, (0, 4), value=WORDS[0]), functional.pad(mask, (0, 4), value=False))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = encoder.encode(tokens[row : row + 1, :length])
        assert_close(batched[row : row + 1, :length], alone, atol=1e-5, rtol=0)
        assert_close(wider[row : row + 1, :length], alone, atol=1e-5, rtol=0)


def test_states_depend_on_tokens_in_both_directions(encoder: EncoderModel, tokens: Tensor) -> None:
    """A token changes the states before and after it: all of them, except where a convolution has a narrow window."""
    vectors: list[Tensor] = []
    hook = encoder.embeddings()["target"].register_forward_hook(lambda module, inputs, out: vectors.append(out))
    hidden = encoder.encode(tokens[:1])
    hook.remove()
    narrow = all(isinstance(layer.mix, Convolution) for layer in encoder.blocks() if hasattr(layer, "mix"))
    for state in (0, 6):
        direction = torch.randn(hidden.shape[-1])
        (gradient,) = torch.autograd.grad(hidden[0, state] @ direction, vectors[0], retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        assert int(reached.sum()) > 1 if narrow and hasattr(encoder.blocks()[0], "mix") else bool(reached.all())


def test_every_parameter_receives_a_gradient(encoder: EncoderModel, tokens: Tensor, mask: Tensor) -> None:
    segments = torch.arange(7).expand(3, 7) // 2 % 2 if getattr(encoder.config, "segments", 0) else None
    hidden = encoder.encode(tokens, mask, segments=segments)
    loss = (hidden[mask] @ torch.randn(hidden.shape[-1])).sum() + encoder.first_state(hidden).sin().sum()
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    without = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None or not gradient.any()]
    unused = [f"{name}_residual.norm." for name, module in encoder.named_modules() if isinstance(module, NoHeads)]
    assert names and [name for name in without if not name.startswith(tuple(unused))] == []


@torch.inference_mode()
def test_attention_and_layer_outputs_are_declared_and_recorded_without_change(
    encoder: EncoderModel, tokens: Tensor, mask: Tensor
) -> None:
    attentions, outputs = encoder.attentions(), encoder.layer_outputs()
    points = {getattr(module, "weights", None) for module in encoder.modules()} & set(hook_points(encoder).values())
    assert {hook_points(encoder)[one.weights] for one in attentions} == points
    assert [output.layer for output in outputs] == list(range(len(outputs))) and outputs
    plain = encoder.encode(tokens, mask)
    with record(encoder, *(one.weights for one in attentions), *(output.name for output in outputs)) as recorded:
        assert torch.equal(encoder.encode(tokens, mask), plain)
    for one in attentions:
        weights = recorded[one.weights]
        assert one.kind == SELF and weights.shape == (3, one.heads, 7, 7)
        assert_close(weights[1].sum(-1), torch.ones(one.heads, 7))
        assert not weights[1, :, :, 3:].any()  # padding
        with ablate(encoder, one.context):
            assert not torch.equal(encoder.encode(tokens, mask), plain)
    assert torch.equal(encoder.encode(tokens, mask), plain)
    assert all(recorded[output.name].shape == plain.shape for output in outputs)


@torch.inference_mode()
def test_only_attention_without_positions_is_equivariant(encoder: EncoderModel, tokens: Tensor) -> None:
    """Permuted tokens have permuted states there; everywhere else the order of the tokens matters."""
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    before, after = encoder.encode(tokens[:1]), encoder.encode(tokens[:1, order])
    mixing = [layer.mix for layer in encoder.blocks() if hasattr(layer, "mix")]
    config: Any = encoder.config
    ordered = config.position != "none" or any(isinstance(layer, Convolution | Recurrent) for layer in mixing)
    assert torch.allclose(after, before[:, order], atol=1e-5) == (not ordered)
