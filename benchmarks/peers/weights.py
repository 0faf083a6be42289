"""Our Transformer's weights in the models of other libraries, so that all systems run the same network.

    for_hugging_face    Marian for post-norm models, Pegasus for pre-norm models; otherwise the two are the same
    for_ctranslate2     a model folder; its vocabulary is our ids as strings

Both take positions as a table and have the same biases as ours. Models that they cannot represent raise an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor, nn

from heedful.models.transformer import Transformer
from heedful.nn.blocks import FeedForward
from heedful.nn.positions import Position
from heedful.text.specials import Specials

POSITIONS = 512  # for positional encodings without a limit


class Part(NamedTuple):
    """One of our matrices, or one of `parts` equal blocks of its rows."""

    name: str
    block: int = 0
    parts: int = 1


ENCODER = {
    "self_attn.q_proj": Part("self_attention.project", 0, 3),
    "self_attn.k_proj": Part("self_attention.project", 1, 3),
    "self_attn.v_proj": Part("self_attention.project", 2, 3),
    "self_attn.out_proj": Part("self_attention.out"),
    "self_attn_layer_norm": Part("self_attention_residual.norm"),
    "fc1": Part("feed_forward.rise"),
    "fc2": Part("feed_forward.fall"),
    "final_layer_norm": Part("feed_forward_residual.norm"),
}
DECODER = ENCODER | {
    "encoder_attn.q_proj": Part("cross_attention.query"),
    "encoder_attn.k_proj": Part("cross_attention.memory", 0, 2),
    "encoder_attn.v_proj": Part("cross_attention.memory", 1, 2),
    "encoder_attn.out_proj": Part("cross_attention.out"),
    "encoder_attn_layer_norm": Part("cross_attention_residual.norm"),
}


def require_compatible(model: Transformer) -> None:
    config, blocks = model.config, [*model.encoder, *model.decoder]
    heads = {count for counts in config.head_counts for count in counts}
    wrong = [
        sentence
        for sentence, applies in {
            f"tie is {config.tie!r}, not 'all'": config.tie != "all",
            f"position is {config.position!r}, neither 'sinusoidal' nor 'learned'": config.position
            not in ("sinusoidal", "learned"),
            "positions are not added to the embeddings": config.position_join != "sum",
            "feed-forward layers are not two linear maps": any(type(block.feed_forward) is not FeedForward for block in blocks),
            "layers differ in heads": len(heads) > 1,
            "the head dimension is not dim / heads": config.resolved_head_dim * max(heads) != config.dim,
            "attention is restricted": config.window > 0,
        }.items()
        if applies
    ]
    if wrong:
        raise SystemExit(f"the peers cannot represent this model: {'; '.join(wrong)}")


def position_table(model: Transformer, position: Position) -> Tensor:
    """The vector added at each position, (positions, dim)."""
    count = POSITIONS if position.limit is None else position.limit
    with torch.no_grad():
        return position.embed(torch.zeros(1, count, model.config.dim), torch.arange(count)[None])[0]


def for_hugging_face(model: Transformer, specials: Specials) -> nn.Module:
    """A Hugging Face model on the CPU, in fp32, for inference."""
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    require_compatible(model)
    model = on_cpu(model)
    config, weights = model.config, model.state_dict()
    sizes = {"attention_heads": config.head_counts[0][0], "ffn_dim": config.feed_forward}
    tables = {side: position_table(model, getattr(model, f"{side}_position")) for side in ("encoder", "decoder")}
    options: dict[str, Any] = dict(
        vocab_size=len(model.embedding.target.weight), d_model=config.dim, encoder_layers=len(model.encoder),
        decoder_layers=len(model.decoder), activation_function=config.activation, scale_embedding=config.scale_embeddings,
        max_position_embeddings=len(tables["encoder"]), pad_token_id=specials.pad, eos_token_id=specials.end,
        decoder_start_token_id=specials.start, forced_eos_token_id=None,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
    )  # fmt: skip
    theirs: nn.Module = (
        MarianMTModel(MarianConfig(**options))
        if config.norm == "post"
        else PegasusForConditionalGeneration(PegasusConfig(**options))
    )
    parameters = dict(theirs.named_parameters())  # embeddings and output projection are one matrix

    def copy_into(name: str, value: Tensor) -> None:
        parameters.pop(name).data.copy_(value)

    copy_into("model.shared.weight", weights["embedding.target.weight"])
    for side, mapping in (("encoder", ENCODER), ("decoder", DECODER)):
        copy_into(f"model.{side}.embed_positions.weight", tables[side])
        for kind in ("weight", "bias"):
            if config.norm == "pre":
                copy_into(f"model.{side}.layer_norm.{kind}", weights[f"{side}_last.{kind}"])
            for layer in range(len(getattr(model, side))):
                for name, part in mapping.items():
                    matrix = weights[f"{side}.{layer}.{part.name}.{kind}"]
                    copy_into(f"model.{side}.layers.{layer}.{name}.{kind}", matrix.chunk(part.parts)[part.block])
    assert not parameters, f"no values were copied to {', '.join(parameters)}"
    return theirs.eval()


def for_ctranslate2(model: Transformer, specials: Specials, folder: Path) -> Path:
    """Write a folder that ctranslate2.Translator opens; the compute type is chosen there."""
    from ctranslate2.specs import TransformerSpec, common_spec

    require_compatible(model)
    model = on_cpu(model)
    config = model.config
    activation = {"relu": common_spec.Activation.RELU, "gelu": common_spec.Activation.GELU}[config.activation]
    spec = TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)), config.head_counts[0][0], pre_norm=config.norm == "pre", activation=activation
    )
    table = model.embedding.target.weight.detach().numpy()
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    for side in ("encoder", "decoder"):
        theirs = getattr(spec, side)
        theirs.scale_embeddings = config.scale_embeddings
        theirs.position_encodings.encodings = position_table(model, getattr(model, f"{side}_position")).numpy()
        if config.norm == "pre":
            copy_norm(theirs.layer_norm, getattr(model, f"{side}_last"))
        for layer, block in zip(theirs.layer, getattr(model, side), strict=True):
            attention = [
                ("self_attention", [block.self_attention.project, block.self_attention.out], block.self_attention_residual)
            ]
            if side == "decoder":
                cross = block.cross_attention
                attention.append(("attention", [cross.query, cross.memory, cross.out], block.cross_attention_residual))
            for name, maps, residual in attention:
                into = getattr(layer, name)
                copy_norm(into.layer_norm, residual.norm)
                for linear, ours in zip(into.linear, maps, strict=True):
                    copy_linear(linear, ours)
            copy_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)
            copy_linear(layer.ffn.linear_0, block.feed_forward.rise)
            copy_linear(layer.ffn.linear_1, block.feed_forward.fall)
    words = [str(index) for index in range(len(table))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.unk_token, spec.config.eos_token = words[specials.unk], words[specials.end]
    spec.config.bos_token = spec.config.decoder_start_token = words[specials.start]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    return folder


def copy_linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight, theirs.bias = ours.weight.detach().numpy(), ours.bias.detach().numpy()


def copy_norm(theirs: Any, ours: nn.LayerNorm) -> None:
    theirs.gamma, theirs.beta = ours.weight.detach().numpy(), ours.bias.detach().numpy()


def on_cpu(model: Transformer) -> Transformer:
    """A copy in fp32 on the CPU."""
    copy = Transformer(model.config, len(model.embedding.target.weight), len(model.embedding.target.weight))
    copy.load_state_dict(model.state_dict())
    return copy.eval()
