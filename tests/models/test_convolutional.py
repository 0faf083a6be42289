"""ConvS2S and ByteNet equal their papers' equations, have the right receptive fields, and reject invalid configs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from tiny import VOCAB, Pairs, config_problems, perturb, source_maps
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from heedful.models.bytenet import ByteNet, ByteNetConfig, EncoderBlock
from heedful.models.convs2s import ConvS2S, ConvS2SConfig, scale_gradient
from heedful.nn.convolution import Convolution
from heedful.nn.hooks import record

HALF = math.sqrt(0.5)


def convs2s(**changes: object) -> ConvS2S:
    sizes = {"dim": 12, "channels": (16, 24), "kernel": (3, 2), "layers": 2, "out_dim": 8} | changes
    return perturb(ConvS2S(ConvS2SConfig(**sizes), VOCAB, VOCAB)).eval()  # type: ignore[arg-type]


def bytenet(**changes: object) -> ByteNet:
    sizes = {"dim": 8, "sets": 1} | changes
    return perturb(ByteNet(ByteNetConfig(**sizes), VOCAB, VOCAB)).eval()  # type: ignore[arg-type]


def logits_of(model: ConvS2S | ByteNet, pairs: Pairs) -> Tensor:
    return model.project(model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).hidden)


def conv1d(convolution: Convolution, x: Tensor, *, causal: bool) -> Tensor:
    """By torch: (time, inputs) -> (time, outputs)."""
    kernel, reach = convolution.kernel, convolution.reach
    before = reach if causal else reach // 2
    weight = convolution.map.weight.view(-1, kernel, convolution.inputs).transpose(1, 2)
    padded = functional.pad(x.T, (before, reach - before))[None]
    return functional.conv1d(padded, weight, convolution.map.bias, dilation=convolution.dilation)[0].T


@torch.inference_mode()
def test_convs2s_equals_the_equations_of_the_paper(pairs: Pairs) -> None:
    """One sentence, without batch and cache, with the attention of each layer written out."""
    model = convs2s()
    source, target = pairs.source[0], pairs.target[0]
    assert model.embedding.source is not None
    embedded = model.embedding.source(source) + model.encoder_position.table.weight[: len(source)]
    x = model.encoder_in(embedded)
    for layer in model.encoder:
        a, b = conv1d(layer.gated.convolution, x, causal=False).chunk(2, dim=-1)
        x = (a * b.sigmoid() + layer.adapt(x)) * HALF
    encoded = model.encoder_out(x)
    target_embedded = model.embedding.target(target) + model.decoder_position.table.weight[: len(target)]
    x = model.decoder_in(target_embedded)
    for step in model.decoder:
        a, b = conv1d(step.gated.convolution, x, causal=True).chunk(2, dim=-1)
        gated = a * b.sigmoid()
        weights = ((step.cross_attention.query(gated) + target_embedded) * HALF @ encoded.T).softmax(-1)
        context = weights @ ((encoded + embedded) * HALF) * math.sqrt(len(source))
        x = ((gated + step.cross_attention.out(context)) * HALF + step.adapt(x)) * HALF
    assert_close(logits_of(model, pairs)[0], model.project(model.decoder_out(x)), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_bytenet_equals_the_equations_of_the_paper(pairs: Pairs) -> None:
    """One sentence of six tokens, which get eight columns; the target is longer."""
    model = bytenet(unfold=1.2)
    assert model.embedding.source is not None
    x = functional.pad(model.embedding.source(pairs.source[0]) * 4, (0, 0, 0, 2))  # sqrt(2 x 8) = 4

    def run_blocks(x: Tensor, blocks: Iterable[nn.Module], *, causal: bool) -> Tensor:
        for block in blocks:
            inside = block.across_norm(block.down(block.down_norm(x).relu())).relu()  # type: ignore[operator]
            inside = conv1d(block.across, inside, causal=causal)  # type: ignore[arg-type]
            x = x + block.up(block.up_norm(inside).relu())  # type: ignore[operator]
        return x

    columns = model.encoder_out(model.encoder_norm(run_blocks(x, model.encoder, causal=False)).relu())
    target = torch.cat((pairs.target[0], pairs.target[1, :3]))  # ten tokens, two more than columns
    x = model.embedding.target(target) * 4 + functional.pad(columns, (0, 0, 0, 2))
    hidden = model.decoder_out(model.decoder_norm(run_blocks(x, model.decoder, causal=True)).relu()).relu()
    ours = logits_of(model, Pairs(pairs.source[:1], pairs.mask[:1], target[None]))
    assert_close(ours[0], model.project(hidden), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_activations_keep_their_variance_through_many_gated_layers() -> None:
    model = ConvS2S(ConvS2SConfig(dim=96, channels=96, layers=15, dropout=0.0), 100, 100)
    source = torch.randint(100, (8, 30))
    with record(model, "encoder.*.out") as recorded:
        model.start(source, None, room=0)
    first, *later = (float(x.var()) for x in recorded.values())
    assert len(later) == 14
    assert all(first / 2 < variance < 2 * first for variance in later)


def test_every_decoder_layer_of_convs2s_has_attention_maps(pairs: Pairs) -> None:
    maps = source_maps(convs2s(channels=16, kernel=3, decoder_layers=3), pairs.source[:1], pairs.target[:1])
    assert [tuple(weights.shape) for weights in maps] == [(1, 7, 6)] * 3
    for weights in maps:
        assert_close(weights.sum(-1), torch.ones(1, 7))


def test_scale_gradient_keeps_values_and_scales_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    scaled = scale_gradient(x, 0.25)
    assert torch.equal(scaled, x)
    (gradient,) = torch.autograd.grad((scaled * torch.arange(3.0)).sum(), x)
    assert_close(gradient, torch.arange(3.0) / 4)


@pytest.mark.parametrize(("sets", "field"), [(1, 63), (2, 125)])
def test_the_receptive_field_of_bytenets_decoder(sets: int, field: int) -> None:
    model = bytenet(sets=sets)
    x = torch.randn(1, field + 6, 16, requires_grad=True)
    out = x
    for block in model.decoder:
        out, _ = block(out, block.across.initial_state(1, x), None)
    (gradient,) = torch.autograd.grad(out[0, -1].sum(), x)
    assert gradient[0].any(-1).nonzero().flatten().tolist() == list(range(6, field + 6))


def test_the_receptive_field_of_bytenets_encoder_block() -> None:
    block = perturb(EncoderBlock(ByteNetConfig(dim=8), dilation=4))
    x = torch.randn(1, 21, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(block(x, None)[0, 10].sum(), x)
    assert gradient[0].any(-1).nonzero().flatten().tolist() == [6, 10, 14]


def test_the_cost_of_bytenet_is_linear_in_length() -> None:
    model = bytenet()

    def work(length: int) -> int:
        tokens = torch.full((1, length), 5)
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            model.step(tokens, model.start(tokens, None, room=0))
        return int(counter.get_total_flops())

    assert work(400) == 4 * work(100) > 0


@torch.inference_mode()
def test_more_tokens_than_positions_are_an_error_and_padding_does_not_count(pairs: Pairs) -> None:
    model = convs2s(max_positions=7)
    state = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=8)).state
    with pytest.raises(Exception, match="8 tokens was given to a model with 7 learned positions"):
        model.step(pairs.target[:, :1], state)
    no_real_tokens = torch.zeros(3, 1, dtype=torch.bool)
    assert model.step(pairs.target[:, :1], state, no_real_tokens).state.row_state["length"].tolist() == [7, 7, 7]


def test_invalid_configs_are_errors() -> None:
    assert config_problems(ConvS2SConfig, layers=3, channels=(8, 8)) == {
        "channels": "given [8, 8], expected one number or one for each of 3 layers"
    }
    assert config_problems(ConvS2SConfig, layers=2, decoder_layers=3, kernel=(3, 3)) == {
        "kernel": "given [3, 3], expected one number or one for each of 2 and 3 layers"
    }
    assert config_problems(ConvS2SConfig, tie="output", dim=16, out_dim=8) == {
        "out_dim": "given 8, but a tied output has dim, which is 16"
    }
    (short,) = ConvS2SConfig(max_positions=10).problems_with(shared=True, source=10, target=11)
    assert short.sentence == "given 10, expected at least 11, the maximum sequence length"
    for config in (ConvS2SConfig(tie="all"), ByteNetConfig(tie="all")):
        (problem,) = config.problems_with(shared=False, source=5, target=5)
        assert problem.path == "tie"
        assert not config.problems_with(shared=True, source=5, target=5)
