"""The Transformer equals torch's own and Marian's, given the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import END, START, VOCAB, Pairs, logits_of, perturb
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.models.transformer import DecoderLayer, EncoderLayer, Transformer, TransformerConfig


def make(**changes: Any) -> Transformer:
    config = TransformerConfig(dim=16, layers=2, heads=2, feed_forward=32, **changes)
    return perturb(Transformer(config, VOCAB, VOCAB)).eval()


def weights_for_torch(ours: EncoderLayer | DecoderLayer) -> dict[str, Tensor]:
    """Weights under the names of torch.nn.TransformerEncoderLayer and TransformerDecoderLayer."""
    parts: dict[str, nn.Module] = {
        "self_attn.out_proj": ours.get_submodule("self_attention.out"),
        "linear1": ours.feed_forward.get_submodule("rise"),
        "linear2": ours.feed_forward.get_submodule("fall"),
        "norm1": ours.self_attention_residual.norm,
    }
    fused = {"self_attn.in_proj": [ours.get_submodule("self_attention.project").state_dict()]}
    if isinstance(ours, DecoderLayer):
        projections = (ours.get_submodule(f"cross_attention.{name}") for name in ("query", "memory"))
        fused["multihead_attn.in_proj"] = [one.state_dict() for one in projections]
        parts |= {
            "multihead_attn.out_proj": ours.get_submodule("cross_attention.out"),
            "norm2": ours.cross_attention_residual.norm,
        }
    parts["norm3" if isinstance(ours, DecoderLayer) else "norm2"] = ours.feed_forward_residual.norm
    weights = {f"{name}.{kind}": value for name, part in parts.items() for kind, value in part.state_dict().items()}
    for name, maps in fused.items():
        weights[f"{name}_weight"] = torch.cat([one["weight"] for one in maps])
        weights[f"{name}_bias"] = torch.cat([one["bias"] for one in maps])
    return weights


def torchs(ours: Transformer) -> nn.Transformer:
    config = ours.config
    options: dict[str, Any] = {"dim_feedforward": config.feed_forward, "dropout": 0.0, "activation": config.activation}
    options |= {"norm_first": config.norm == "pre", "batch_first": True}
    layers = nn.TransformerEncoderLayer(config.dim, 2, **options), nn.TransformerDecoderLayer(config.dim, 2, **options)
    ends = [nn.LayerNorm(config.dim) if config.norm == "pre" else None for _ in layers]
    encoder = nn.TransformerEncoder(layers[0], config.layers, ends[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(layers[1], config.layers, ends[1])
    theirs = nn.Transformer(config.dim, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for layer, block in zip([*encoder.layers, *decoder.layers], ours.blocks(), strict=True):
        assert isinstance(block, EncoderLayer | DecoderLayer)
        layer.load_state_dict(weights_for_torch(block))
    for end, last in zip(ends, (ours.encoder_last, ours.decoder_last), strict=True):
        if end is not None:
            end.load_state_dict(last.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_hidden_states_equal_those_of_torchs_transformer(norm: str, activation: str, pairs: Pairs) -> None:
    ours = make(norm=norm, activation=activation)
    source = ours.embed("source", ours.encoder_position, pairs.source, torch.arange(6)[None])
    target = ours.embed("target", ours.encoder_position, pairs.target, torch.arange(7)[None])
    later = torch.ones(7, 7).triu(1).bool()
    padding = {"src_key_padding_mask": ~pairs.mask, "memory_key_padding_mask": ~pairs.mask}
    expected = torchs(ours)(source, target, tgt_mask=later, **padding)
    hidden = ours.step(pairs.target, ours.start(pairs.source, pairs.mask, room=0)).hidden
    assert_close(hidden, expected, atol=1e-5, rtol=0)


PLACES = {
    "fc1": ["feed_forward.rise"],
    "fc2": ["feed_forward.fall"],
    "self_attn.out_proj": ["self_attention.out"],
    "encoder_attn.out_proj": ["cross_attention.out"],
    "self_attn_layer_norm": ["self_attention_residual.norm"],
    "encoder_attn_layer_norm": ["cross_attention_residual.norm"],
    "final_layer_norm": ["feed_forward_residual.norm"],
    "self_attn.qkv": ["self_attention.project"],
    "encoder_attn.qkv": ["cross_attention.query", "cross_attention.memory"],
}


def copy_from_marian(theirs: nn.Module, ours: nn.Module) -> None:
    """One layer's weights and biases."""
    given = dict(theirs.named_parameters())
    for name, places in PLACES.items():
        attention, _, roles = name.partition(".")
        parts = [f"{attention}.{role}_proj" for role in "qkv"] if roles == "qkv" else [name]
        for kind in ("weight", "bias"):
            if f"{parts[0]}.{kind}" not in given:  # an encoder has no cross-attention
                continue
            value = torch.cat([given.pop(f"{part}.{kind}") for part in parts])
            into = [ours.get_parameter(f"{place}.{kind}") for place in places]
            for parameter, piece in zip(into, torch.split(value, [len(one) for one in into]), strict=True):
                parameter.data.copy_(piece)
    assert not given, "every parameter of Marian's layer was copied"


def test_logits_equal_those_of_marian(pairs: Pairs) -> None:
    """Its sinusoids are stored in two halves, so they are loaded as learned positions."""
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
    config = marian.MarianConfig(
        vocab_size=VOCAB,
        d_model=16,
        max_position_embeddings=32,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=END,
        decoder_start_token_id=START,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
    )
    theirs: Any = perturb(marian.MarianMTModel(config)).eval()
    ours = make(position="learned", max_positions=32)
    ours.embedding.target.weight.data.copy_(theirs.model.shared.weight)
    for position, stack in ((ours.encoder_position, theirs.model.encoder), (ours.decoder_position, theirs.model.decoder)):
        position.get_parameter("table.weight").data.copy_(stack.embed_positions.weight)
    for layer, block in zip([*theirs.model.encoder.layers, *theirs.model.decoder.layers], ours.blocks(), strict=True):
        copy_from_marian(layer, block)
    with torch.inference_mode():
        expected = theirs(input_ids=pairs.source, attention_mask=pairs.mask.long(), decoder_input_ids=pairs.target).logits
        assert_close(logits_of(ours, pairs), expected - theirs.final_logits_bias, atol=1e-5, rtol=0)
