"""The Transformer: an encoder that reads all at once, a decoder that says one token after another
("Attention Is All You Need", Vaswani et al., 2017).

    start    source -> encoder -> keys and values for every decoder layer, once per source
    step     tokens + past -> decoder -> hidden, and the past grown by these tokens

A whole teacher-forced target and a single token go through the same `step`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import torch
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.nn import masks
from heedful.nn.attention import CrossAttention, SelfAttention, Sight
from heedful.nn.blocks import FEED_FORWARDS, NORMS
from heedful.nn.dropout import Dropout
from heedful.nn.positions import EMBEDDED, POSITIONS, Concatenated, Position, PositionSize
from heedful.nn.rows import State, Step, Tree
from heedful.nn.taps import Tap
from heedful.schema import Config, Probability, Problem, refuse, unused

PerLayer = PositiveInt | tuple[PositiveInt, ...]


class TransformerConfig(Config):
    """Sizes default to the paper's base model; big is dim 1024, heads 16, feed_forward 4096, dropout 0.3."""

    family: Literal["transformer"] = "transformer"
    dim: PositiveInt = 512
    layers: PositiveInt = 6
    decoder_layers: PositiveInt | None = None  # as many as `layers` unless said
    heads: PerLayer = 8  # one number, or one for each layer
    decoder_heads: PerLayer | None = None  # of the decoder's self-attention; as `heads` unless said
    cross_heads: PerLayer | None = None  # of its look at the source; as `decoder_heads` unless said
    head_dim: PositiveInt | None = None  # dim / heads unless said
    feed_forward: PositiveInt = 2048
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    norm: Literal["post", "pre"] = "post"
    position: Literal["none", "sinusoidal", "learned", "relative", "t5", "rotary", "alibi"] = "sinusoidal"
    position_join: Literal["sum", "concatenate"] = "sum"
    max_positions: PositiveInt = 1024  # of learned positions
    relative_clip: PositiveInt = 16
    window: NonNegativeInt = 0  # restricted self-attention: how many tokens one sees; 0: all
    tie: Literal["all", "output", "none"] = "all"  # all: one matrix for both embeddings and the output
    scale_embeddings: bool = True  # by sqrt(dim), as in the paper
    dropout: Probability = 0.1  # of embeddings and of every sub-layer's output
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0

    @property
    def head_counts(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Heads per layer of the encoder, of the decoder's self-attention and of its cross-attention."""
        decoder_layers = self.decoder_layers or self.layers
        decoder = self.heads if self.decoder_heads is None else self.decoder_heads
        cross = decoder if self.cross_heads is None else self.cross_heads
        return per_layer(self.heads, self.layers), per_layer(decoder, decoder_layers), per_layer(cross, decoder_layers)

    @property
    def size_of_head(self) -> int:
        return self.head_dim or self.dim // max(max(counts) for counts in self.head_counts)

    @model_validator(mode="after")
    def _fits_together(self) -> TransformerConfig:
        decoder_layers = self.decoder_layers or self.layers
        expected = {"heads": self.layers, "decoder_heads": decoder_layers, "cross_heads": decoder_layers}
        problems = [
            Problem(name, f"given {list(given)!r}, expected one number or one for each of {expected[name]} layers")
            for name in expected
            if isinstance(given := getattr(self, name), tuple) and len(given) != expected[name]
        ]
        if isinstance(self.heads, tuple) and self.decoder_heads is None and decoder_layers != self.layers:
            listed = f"missing; heads are listed for {self.layers} layers, not for {decoder_layers}"
            problems.append(Problem("decoder_heads", listed))
        if not problems and self.head_dim is None:
            most = max(max(counts) for counts in self.head_counts)
            if self.dim % most:
                problems.append(Problem("heads", f"given {most}, which does not divide dim {self.dim}; or set model.head_dim"))
        if not problems and self.position == "rotary" and self.size_of_head % 2:
            problems.append(
                Problem("position", f"given 'rotary', which needs an even head size, but it is {self.size_of_head}")
            )
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        idle = {}
        if self.position not in EMBEDDED:
            idle["position_join"] = f"position {self.position!r} adds nothing to the embeddings"
        if self.position != "learned":
            idle["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            idle["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        refuse([*problems, *unused(self, idle)])
        return self


def per_layer(heads: PerLayer, layers: int) -> tuple[int, ...]:
    return (heads,) * layers if isinstance(heads, int) else heads


class EncoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig, heads: int) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.attention = SelfAttention(config.dim, heads, config.size_of_head, config.attention_dropout)
        self.attention_residual = residual(config.dim, config.dropout)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = Tap()

    def forward(self, x: Tensor, position: Position, positions: Tensor, mask: Tensor | None) -> Tensor:
        """x (sources, time, dim), mask (sources or 1, 1, time or 1, time)."""

        def attend(x: Tensor) -> Tensor:
            query, key, value = self.attention.split(x)
            query, key = position.rotate(query, positions), position.rotate(key, positions)
            return self.attention(query, key, value, sight(position, query, positions, positions, mask))

        x = self.attention_residual(x, attend)
        return self.out(self.feed_forward_residual(x, self.feed_forward))

    if TYPE_CHECKING:
        __call__ = forward


class DecoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig, heads: int, cross_heads: int) -> None:
        super().__init__()
        residual = NORMS[config.norm]
        self.attention = SelfAttention(config.dim, heads, config.size_of_head, config.attention_dropout)
        self.attention_residual = residual(config.dim, config.dropout)
        self.cross = CrossAttention(config.dim, cross_heads, config.size_of_head, config.attention_dropout)
        self.cross_residual = residual(config.dim, config.dropout)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = Tap()

    def forward(self, x: Tensor, memory: Tree, past: Tree, now: Now) -> Tensor:
        """x (rows, time, dim); memory: this layer's keys and values and the source's mask; past: this layer's buffers."""

        def attend(x: Tensor) -> Tensor:
            query, key, value = self.attention.split(x)
            query = now.position.rotate(query, now.query_positions)
            key = now.position.rotate(key, now.query_positions)
            key, value = extend(past, key, value, now.filled)
            seen = sight(now.position, query, now.query_positions, now.key_positions, now.mask, causal=now.causal)
            return self.attention(query, key, value, seen)

        key, value, source_mask = memory
        x = self.attention_residual(x, attend)
        x = self.cross_residual(x, lambda x: self.cross(x, key, value, source_mask))
        return self.out(self.feed_forward_residual(x, self.feed_forward))

    if TYPE_CHECKING:
        __call__ = forward


class Now:
    """What all decoder layers share in one step: where the queries and keys stand and who sees whom."""

    def __init__(self, position: Position, past: Tree, tokens: Tensor, filled: int, window: int) -> None:
        time = tokens.shape[1]
        self.position, self.filled = position, filled
        if past["positions"] is None:  # all rows march in step: one row of positions speaks for all
            slots = torch.arange(filled + time, device=tokens.device)[None]
            self.query_positions, self.key_positions = slots[:, filled:], slots
        else:
            self.query_positions = past["positions"][:, filled : filled + time]
            self.key_positions = past["positions"][:, : filled + time]
        held = past["held"]
        restricted = 0 < window < filled + time
        self.causal = filled == 0 and held is None and not restricted
        self.mask: Tensor | None = None
        if restricted:
            self.mask = masks.causal_window(self.query_positions, self.key_positions, window)
        elif not self.causal and time > 1:
            self.mask = masks.causal(self.query_positions, self.key_positions)
        if held is not None:
            held = held[:, None, : filled + time]  # (rows, 1, key)
            self.mask = held if self.mask is None else self.mask & held
        if self.mask is not None:
            self.mask = self.mask[:, None]  # (rows or 1, 1, query, key)


def sight(
    position: Position,
    query: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    mask: Tensor | None,
    *,
    causal: bool = False,
) -> Sight:
    """What a position scheme adds to where one may look."""
    bias = position.bias(query, query_positions, key_positions)
    mix = (lambda weights: position.mix(weights, query_positions, key_positions)) if position.mixes else None
    return Sight(mask, causal, bias, mix)


def extend(past: Tree, key: Tensor, value: Tensor, filled: int) -> tuple[Tensor, Tensor]:
    """Write new keys and values behind the old ones and return all of them; without buffers there is no past."""
    if past is None:
        assert filled == 0, "a second step needs buffers: give `start` room for all tokens to come"
        return key, value
    keys, values = past
    end = filled + key.shape[2]
    assert end <= keys.shape[2], f"room was made for {keys.shape[2]} tokens, but {end} were given"
    keys[:, :, filled:end] = key
    values[:, :, filled:end] = value
    return keys[:, :, :end], values[:, :, :end]


def feed_forward(config: TransformerConfig) -> nn.Module:
    made = FEED_FORWARDS[config.activation]
    return made(config.dim, config.feed_forward, config.activation, config.activation_dropout)


def make_position(config: TransformerConfig, heads: Sequence[int], *, reads_ahead: bool) -> Position:
    size = PositionSize(
        dim=config.dim,
        heads=max(heads),
        head_dim=config.size_of_head,
        limit=config.max_positions,
        clip=config.relative_clip,
        reads_ahead=reads_ahead,
    )
    scheme = POSITIONS[config.position](size)
    return scheme if config.position_join == "sum" else Concatenated(size, scheme)


if TYPE_CHECKING:
    Layer = TypeVar("Layer", bound=nn.Module)

    class Layers(nn.ModuleList, Generic[Layer]):
        """A list of layers that knows of what kind they are."""

        def __init__(self, layers: Iterable[Layer]) -> None: ...

        def __iter__(self) -> Iterator[Layer]: ...

else:
    Layers = nn.ModuleList


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        encoder_heads, decoder_heads, cross_heads = config.head_counts
        self.target_embedding = embedding(target_vocab, config.dim)
        self.source_embedding = None if config.tie == "all" else embedding(source_vocab, config.dim)
        self.output = None if config.tie != "none" else embedding(target_vocab, config.dim)
        self.scale = math.sqrt(config.dim) if config.scale_embeddings else 1.0
        self.dropout = Dropout(config.dropout)
        self.encoder_position = make_position(config, encoder_heads, reads_ahead=True)
        self.encoder = Layers(EncoderLayer(config, heads) for heads in encoder_heads)
        self.encoder_last = NORMS[config.norm].last(config.dim)
        self.decoder_position = make_position(config, decoder_heads, reads_ahead=False)
        self.decoder = Layers(
            DecoderLayer(config, heads, cross) for heads, cross in zip(decoder_heads, cross_heads, strict=True)
        )
        self.decoder_last = NORMS[config.norm].last(config.dim)

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """source (sources, time), source_mask (sources, time) or None: nothing is padded; room: tokens to come."""
        self.encoder_position.check_length(source.shape[1])
        positions = torch.arange(source.shape[1], device=source.device)[None]  # (1, time)
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        x = self.embed(table, self.encoder_position, source, positions)
        padding = None if source_mask is None else source_mask[:, None, None, :]  # (sources, 1, 1, time)
        mask = padding
        if self.config.window > 0 and self.config.window // 2 < source.shape[1] - 1:
            near = masks.window(positions, positions, self.config.window)[:, None]  # (1, 1, time, time)
            mask = near if padding is None else near & padding
        for layer in self.encoder:
            x = layer(x, self.encoder_position, positions, mask)
        x = self.encoder_last(x)
        memory = {"layers": [layer.cross.remember(x) for layer in self.decoder], "mask": padding}
        buffers = [self.buffers_for(layer, len(source), room, x) if room else None for layer in self.decoder]
        return State(memory, {"layers": buffers, "positions": None, "held": None}, filled=0)

    def buffers_for(self, layer: DecoderLayer, rows: int, room: int, like: Tensor) -> tuple[Tensor, Tensor]:
        shape = (rows, layer.attention.heads, room, self.config.size_of_head)
        return like.new_empty(shape), like.new_empty(shape)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """tokens (rows, time): the next token, a chunk, or a whole target; mask (rows, time): which of them are real."""
        end = state.filled + tokens.shape[1]
        self.decoder_position.check_length(end)
        past = place(state.past, tokens, mask, state.filled)
        now = Now(self.decoder_position, past, tokens, state.filled, self.config.window)
        x = self.embed(self.target_embedding, self.decoder_position, tokens, now.query_positions)
        for layer, (key, value), buffers in zip(self.decoder, state.memory["layers"], past["layers"], strict=True):
            x = layer(x, (key, value, state.memory["mask"]), buffers, now)
        return Step(self.decoder_last(x), State(state.memory, past, end), {})

    def project(self, hidden: Tensor) -> Tensor:
        """(…, dim) -> logits (…, target vocabulary)."""
        table = self.target_embedding if self.output is None else self.output
        return nn.functional.linear(hidden, table.weight)

    def embed(self, table: nn.Embedding, position: Position, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(position.embed(table(tokens) * self.scale, positions))  # (rows, time, dim)

    def blocks(self) -> list[nn.Module]:
        """The layers, for those who recompute, shard or compile them one by one."""
        return [*self.encoder, *self.decoder]


def place(past: Tree, tokens: Tensor, mask: Tensor | None, filled: int) -> Tree:
    """Note which slots these tokens take. As long as every token is real, no note is needed: all rows march in step."""
    if mask is None and past["held"] is None:
        return past
    rows = tokens.shape[0]
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    if past["held"] is None:
        held = torch.ones(rows, filled, dtype=torch.bool, device=tokens.device)
        positions = torch.arange(filled, device=tokens.device).expand(rows, filled)
    else:
        held, positions = past["held"], past["positions"]
    following = held.sum(-1, keepdim=True) + real.cumsum(-1) - 1  # (rows, time): each real token comes next
    return {
        "layers": past["layers"],
        "positions": torch.cat((positions, following.clamp(min=0)), dim=1),
        "held": torch.cat((held, real), dim=1),
    }


def embedding(vocab: int, dim: int) -> nn.Embedding:
    made = nn.Embedding(vocab, dim)
    nn.init.normal_(made.weight, std=dim**-0.5)
    return made
