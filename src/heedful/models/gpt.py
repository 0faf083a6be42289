"""Decoder-only models: one stack of causal layers for all that was read and all that is said.

    GPT-1   post-norm, weights N(0, 0.02^2)                                                    Radford et al., 2018
    GPT-2   pre-norm, the layers' last maps divided by sqrt(2 x layers) at the beginning       Radford et al., 2019
    T-D     source, separator, target as one sequence; local and compressed attention          Liu et al., 2018

    start   source -> its keys and values in slots of their own, which all hypotheses share; a language model reads nothing
    step    tokens + what came before -> hidden

The end token of the source and the start token of the target together separate them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import ConfigError
from heedful.models.family import FamilyConfig, PerLayer, PositionName, per_layer, refuse_pruned_positions
from heedful.nn import masks
from heedful.nn.attention import AttentionCore, NoHeads, join_heads, self_attention
from heedful.nn.attention_pattern import PATTERNS, History, PatternCache, QueryKeyValue
from heedful.nn.blocks import FEED_FORWARDS, NORMS
from heedful.nn.decoder_state import State, Step, Tree, allocate, new_slot_owners, write, write_pair
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import Linear, Readout
from heedful.nn.losses import Loss
from heedful.nn.positions import POSITIONS, Position, PositionSize, make_attention_bias
from heedful.schema import NonNegativeNumber, Probability, Problem, Size, SmallCount, refuse, unused

ReachName = Literal["full", "local", "compressed"]
Reaches = ReachName | tuple[ReachName, ...]
DEVIATION = 0.02  # of all weights at the beginning


class GPTConfig(FamilyConfig):
    """Sizes default to GPT-2's smallest. GPT-1 is norm "post" with 512 positions."""

    reads: ClassVar[bool] = False
    family: Literal["gpt"] = "gpt"
    """Model family."""
    dim: Size = 768
    """Size of embeddings and hidden states."""
    layers: SmallCount = 12
    """Decoder layers."""
    heads: PerLayer = 12
    """Attention heads: one number, or one for each layer; 0: the layer adds only its bias."""
    head_dim: Size | None = None
    """Size of an attention head; default: dim / heads."""
    feed_forward: Size | None = None
    """Hidden size of feed-forward layers; default: 4 x dim."""
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu_tanh"
    """Activation of feed-forward layers."""
    norm: Literal["post", "pre"] = "pre"
    """Layer normalization after or before each sub-layer."""
    position: PositionName = "learned"
    """Positional encoding."""
    max_positions: Size = 1024
    """Number of learned positions; source and target are one sequence."""
    relative_clip: Size = 16
    """Maximum distance that relative positions distinguish."""
    reach: Reaches = "full"
    """Attention pattern of all layers, or of each layer."""
    block: Size = 256
    """Tokens of a block of local attention."""
    stride: Size = 3
    """Tokens that compressed attention joins into one key."""
    tie: bool = True
    """Share the weights of embedding and output."""
    source_loss: NonNegativeNumber = 0.0
    """Weight of the loss of predicting the source as well."""
    dropout: Probability = 0.1
    """Dropout of every sub-layer's output."""
    embedding_dropout: Probability | None = None
    """Dropout of embeddings; default: dropout."""
    word_dropout: Probability = 0.0
    """Dropout of whole word types within a batch (Gal and Ghahramani, 2016)."""
    output_dropout: Probability = 0.0
    """Dropout before the output layer."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout inside feed-forward layers."""

    @property
    def head_counts(self) -> tuple[int, ...]:
        return per_layer(self.heads, self.layers)

    @property
    def resolved_head_dim(self) -> int:
        return self.head_dim or self.dim // max(self.head_counts)

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        return {"within": self.head_counts}

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        within = left["within"]
        refuse_pruned_positions(self.position, [self.head_counts], [within])
        for layer, (reach, before, now) in enumerate(zip(self.reaches, self.head_counts, within, strict=True)):
            if reach == "compressed" and now != before:
                sentence = f"layer {layer} has compressed attention, which mixes its heads, so none of them can go"
                raise ConfigError(sentence, hint="train with gates on a model whose layers have reach 'full' or 'local'")
        return {"heads": within, "head_dim": self.resolved_head_dim}

    @property
    def reaches(self) -> tuple[ReachName, ...]:
        return (self.reach,) * self.layers if isinstance(self.reach, str) else self.reach

    @model_validator(mode="after")
    def _fits_together(self) -> GPTConfig:
        problems = []
        if len(self.reaches) != self.layers:
            given = f"given {list(self.reaches)!r}, expected one word or one for each of {self.layers} layers"
            problems.append(Problem("reach", given))
        if len(self.head_counts) != self.layers:
            given = f"given {list(self.head_counts)!r}, expected one number or one for each of {self.layers} layers"
            problems.append(Problem("heads", given))
        elif self.head_dim is None and not max(self.head_counts):
            problems.append(Problem("head_dim", "missing; it cannot be told from heads where there are none"))
        elif self.head_dim is None and self.dim % max(self.head_counts):
            sentence = f"given {max(self.head_counts)}, which does not divide dim {self.dim}; or set model.head_dim"
            problems.append(Problem("heads", sentence))
        elif self.position == "rotary" and self.resolved_head_dim % 2:
            sentence = f"given 'rotary', which needs an even head size, but it is {self.resolved_head_dim}"
            problems.append(Problem("position", sentence))
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        if not problems and ("compressed", 0) in zip(self.reaches, self.head_counts, strict=True):
            problems.append(Problem("heads", "given 0 for a layer with compressed attention, which needs some"))
        if "compressed" in self.reaches and self.stride == 1:
            problems.append(Problem("stride", "given 1, which compresses nothing; expected 2 or more"))
        idle = {}
        if self.position != "learned":
            idle["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            idle["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        if "local" not in self.reaches:
            idle["block"] = "no layer has reach 'local'"
        if "compressed" not in self.reaches:
            idle["stride"] = "no layer has reach 'compressed'"
        refuse([*problems, *unused(self, idle)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = []
        if source and not shared:
            one = "given 'gpt', in which source and target are one sequence; expected tokenizer.shared = true"
            problems.append(Problem("family", one))
        needed = 2 * max(source, target) if source else target
        if self.position == "learned" and self.max_positions < needed:
            why = "twice the longest side, as source and target are one sequence" if source else "the tokens of a sequence"
            problems.append(Problem("max_positions", f"given {self.max_positions}, expected at least {needed}: {why}"))
        return problems


class StepContext:
    """What all layers share in one pass: where the new tokens stand, and whom they see.

    The rows of a source stand where time stands, (source, new = beam x time), so that all look at one past."""

    owned_slots: Tensor | None = None
    seen: Tensor  # (sources, new, slots); where something came before
    key_positions: Tensor  # (sources, slots)
    slots: Tensor | slice | None = None  # where the new tokens are written; None: they are put behind what was read

    def __init__(self, tokens: Tensor, real: Tensor | None, *, sources: int, reading: bool = False) -> None:
        self.sources, self.real, self.reading = sources, real, reading
        self.rows, self.time = tokens.shape
        self.whole = True  # nothing came before
        self.query_positions = torch.arange(self.time, device=tokens.device)[None]  # (sources or 1, new)

    def after(self, state: State, tokens: Tensor, limit: int | None) -> StepContext:
        """The new tokens continue what the state holds."""
        self.whole = False
        real, beam = self.real, self.rows // self.sources
        positions = self.query_positions if real is None else (real.cumsum(-1) - 1).clamp(min=0)
        positions = positions.expand_as(tokens)  # (rows, time): each real token comes next
        if state.owned_slots is not None:
            positions = positions + state.owned_slots.sum(-1, keepdim=True)
        if limit is not None and isinstance(state.filled, Tensor):
            positions = positions.clamp(max=limit - 1)  # of those who are done, but go on while steps are replayed
        self.query_positions = self.key_positions = positions.reshape(self.sources, -1)  # (sources, new)
        if state.owned_slots is None or has_room(state):
            self.owned_slots, self.slots = allocate(state, beam, tokens, real)
        else:
            own = new_slot_owners(int(beam), self.time, tokens.device).repeat(self.rows // beam, 1)
            self.owned_slots = torch.cat((state.owned_slots, own if real is None else own & real.repeat(1, beam)), dim=1)
        if state.kv_cache is not None:
            kv_cache = state.kv_cache["positions"]
            self.key_positions = (
                torch.cat((kv_cache, self.query_positions), dim=1)
                if self.slots is None
                else write(kv_cache, self.slots, self.query_positions)
            )
        owned_slots = self.owned_slots[:, : self.key_positions.shape[1]].view(self.sources, beam, 1, -1)
        self.seen = owned_slots.expand(-1, -1, self.time, -1).flatten(1, 2)
        if self.time > 1:
            self.seen = self.seen & masks.causal(self.query_positions, self.key_positions)
        return self

    def put(self, buffers: tuple[Tensor, Tensor] | None, new: PatternCache) -> tuple[Tensor, Tensor]:
        """New keys and values (rows, time, heads, size) behind the old ones -> all (sources, heads, slots, size)."""
        key, value = (x.reshape(self.sources, -1, *x.shape[2:]) for x in (new.key, new.value))
        if buffers is not None and self.slots is not None:
            key, value = write_pair(buffers, self.slots, (key, value))
        elif buffers is not None:
            key, value = torch.cat((buffers[0], key), dim=1), torch.cat((buffers[1], value), dim=1)
        return key.transpose(1, 2), value.transpose(1, 2)


def has_room(state: State) -> bool:
    return state.owned_slots is not None and state.owned_slots.shape[1] > state.reserved


class Layer(nn.Module):
    def __init__(self, config: GPTConfig, reach: ReachName, heads: int) -> None:
        super().__init__()
        residual, width = NORMS[config.norm], heads * config.resolved_head_dim
        size = config.stride if reach == "compressed" else config.block
        self.reach = PATTERNS[reach](width, size)
        # the same look-up, with taps of its own: a source is another sequence
        self.reading = AttentionCore(config.attention_dropout) if heads else None
        self.read = HookPoint()
        self.self_attention = self_attention(config.dim, heads, config.resolved_head_dim, config.attention_dropout)
        self.self_attention_residual = residual(config.dim, config.dropout)
        made = FEED_FORWARDS[config.activation]
        hidden = config.feed_forward or 4 * config.dim
        self.feed_forward = made(config.dim, hidden, config.activation, config.activation_dropout)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(
        self, x: Tensor, position: Position, now: StepContext, before: Tree, history: History
    ) -> tuple[Tensor, PatternCache]:
        """x (sources, new, dim); before: this layer's keys and values so far, and what it has not convolved yet."""
        kept: list[PatternCache] = []
        attention = self.self_attention

        def attend(x: Tensor) -> Tensor:
            made = QueryKeyValue(*attention.split(x))
            if isinstance(attention, NoHeads):
                nothing = made.key.view(now.rows, now.time, 0, made.key.shape[-1])
                kept.append(PatternCache(nothing, nothing, None))
                return attention(x, made.key, made.value, None)
            if now.whole:
                assert self.reading is not None, "a layer with heads reads with them"
                look = self.reading if now.reading else attention.core
                found, new = self.reach(look, made, position, now.real)
            else:
                found, new = self.follow(attention.core, made, position, now, before, history)
            kept.append(new)
            out: Tensor = attention.out(join_heads(found))
            return out

        x = self.self_attention_residual(x, attend)
        x = self.feed_forward_residual(x, self.feed_forward)
        return self.read(x) if now.reading else self.out(x), kept[0]

    def follow(
        self, look: AttentionCore, made: QueryKeyValue, position: Position, now: StepContext, before: Tree, history: History
    ) -> tuple[Tensor, PatternCache]:
        """What new tokens find among all that came before, and among themselves."""
        key, value = (x.transpose(1, 2).reshape(now.rows, now.time, x.shape[1], -1) for x in (made.key, made.value))
        new = self.reach.blend(key, value, history, now.real)  # (rows, time, heads, size)
        turned = new.key.reshape(now.sources, -1, *new.key.shape[2:]).transpose(1, 2)  # (sources, heads, new, size)
        turned = position.rotate(turned, now.query_positions).transpose(1, 2)
        query = position.rotate(made.query, now.query_positions)
        key, value = now.put(before, new._replace(key=turned))
        seen = self.reach.narrow(now.seen, now.query_positions, now.key_positions)[:, None]  # (sources, 1, new, slots)
        looks = make_attention_bias(position, query, now.query_positions, now.key_positions, seen)
        return look(query, key, value, looks), new

    if TYPE_CHECKING:
        __call__ = forward


class GPT(nn.Module):
    def __init__(self, config: GPTConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        vocab = max(source_vocab, target_vocab)  # one vocabulary; a run sees to it
        self.embedding = nn.Embedding(vocab, config.dim)
        self.output = None if config.tie else nn.Embedding(vocab, config.dim)
        self.readout = Readout(self.embedding if self.output is None else self.output)
        size = PositionSize(
            dim=config.dim,
            heads=max(config.head_counts),
            head_dim=config.resolved_head_dim,
            limit=config.max_positions,
            clip=config.relative_clip,
            reads_ahead=False,
        )
        self.position = POSITIONS[config.position](size)
        self.word_dropout = Dropout(config.word_dropout)
        self.embedding_dropout = Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.output_dropout = Dropout(config.output_dropout)
        self.layers = Layers(Layer(config, *both) for both in zip(config.reaches, config.head_counts, strict=True))
        self.last = NORMS[config.norm].last(config.dim)
        self.initialize()

    def initialize(self) -> None:
        """All weights N(0, 0.02^2); with pre-norm, where nothing bounds the sum of all layers, each adds the less to it."""
        for module in self.modules():
            if isinstance(module, Linear):
                nn.init.normal_(module.weight, std=DEVIATION)
        for table in (self.embedding, self.output):
            if table is not None:
                nn.init.normal_(table.weight, std=DEVIATION)
        if self.config.norm == "pre":
            for layer in self.layers:
                joins = [] if isinstance(layer.self_attention, NoHeads) else [layer.self_attention.out]
                for ends in (*joins, layer.feed_forward.fall):
                    nn.init.normal_(ends.weight, std=DEVIATION / math.sqrt(2 * len(self.layers)))

    @property
    def longest(self) -> int | None:
        """Half of the positions are for the source."""
        return None if self.position.limit is None else self.position.limit // 2

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """source (sources, time), perhaps of no tokens at all; source_mask (sources, time): real ones, before all padding;
        room: how many tokens the rows of a source will say together, 0: one `step` says it all."""
        sources, length = source.shape
        if length == 0 and not room:
            return State(None, None)
        memory, positions = None, torch.arange(length, device=source.device).expand(sources, -1)
        if length:
            self.position.check_length(length)
            hidden, kept = self.run(source, StepContext(source, source_mask, sources=sources, reading=True), State(None, None))
            pairs, row_state = [(one.key, one.value) for one in kept], [one.history for one in kept]
            if self.training and self.config.source_loss and length > 1:
                memory = self.surprises(hidden, source, source_mask)
        else:
            weight = self.embedding.weight
            counts, size = self.config.head_counts, self.config.resolved_head_dim
            pairs = [(weight.new_zeros(sources, 0, heads, size),) * 2 for heads in counts]
            row_state = [layer.reach.beginning(sources, weight) for layer in self.layers]
        there = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        kv_cache = {"layers": pairs, "positions": positions}
        if room:  # zeros: what nobody wrote is multiplied by a weight of zero
            roomy = [tuple(functional.pad(x, (0, 0, 0, 0, 0, room)) for x in pair) for pair in pairs]
            kv_cache = {"layers": roomy, "positions": functional.pad(positions, (0, room))}
            there = functional.pad(there, (0, room))
        return State(memory, row_state, kv_cache, there, filled=length, reserved=length)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """tokens (rows, time): the next token, a chunk, or a whole target; mask (rows, time): which of them are real."""
        nothing, roomy = state.kv_cache is None, has_room(state)
        assert roomy or state.filled == state.reserved, "a second step needs room: tell `start` how much is to come"
        now = StepContext(tokens, mask, sources=tokens.shape[0] if nothing else state.kv_cache["positions"].shape[0])
        if not nothing or mask is not None:
            now = now.after(state, tokens, self.position.limit)
        self.check_length(now, state)
        x, kept = self.run(tokens.view(now.sources, -1), now, state)
        losses = {}
        if state.memory is not None:
            losses["source"] = Loss(self.config.source_loss * state.memory["surprise"].sum(), state.memory["tokens"].sum())
        after = state._replace(
            row_state=None if nothing else [one.history for one in kept],
            owned_slots=now.owned_slots if roomy else state.owned_slots,
            filled=state.filled + tokens.numel() // now.sources,
        )
        return Step(x.view(*tokens.shape, -1), after, losses)

    def run(self, tokens: Tensor, now: StepContext, state: State) -> tuple[Tensor, list[PatternCache]]:
        """tokens (sources, new) -> what the last layer thinks of them, and what every layer keeps of them."""
        vectors = self.embedding(tokens)  # (sources, new, dim)
        if self.training and self.config.word_dropout:
            vectors = vectors * self.word_dropout(vectors.new_ones(self.embedding.num_embeddings, 1))[tokens]
        x = self.embedding_dropout(self.position.embed(vectors, now.query_positions))
        nothing: list[None] = [None] * len(self.layers)
        before = nothing if state.kv_cache is None else state.kv_cache["layers"]
        histories = (
            [layer.reach.beginning(now.rows, x) for layer in self.layers] if state.row_state is None else state.row_state
        )
        kept = []
        for layer, buffers, history in zip(self.layers, before, histories, strict=True):
            x, new = layer(x, self.position, now, buffers, history)
            kept.append(new)
        return self.output_dropout(self.last(x)), kept

    def check_length(self, now: StepContext, state: State) -> None:
        """A GPU is only asked where the slots alone do not tell that everything fits."""
        if self.position.limit is None or not isinstance(state.filled, int):
            return
        most = now.time if now.whole else now.key_positions.shape[1]
        if most > self.position.limit:
            self.position.check_length(most if now.whole else int(now.query_positions.max()) + 1)

    def surprises(self, hidden: Tensor, source: Tensor, source_mask: Tensor | None) -> dict[str, Tensor]:
        """-log p of the tokens of each source after the first, added up, and how many there are: (sources,) each."""
        wanted = source[:, 1:]
        real = torch.ones_like(wanted) if source_mask is None else source_mask[:, 1:].long()
        logits = self.project(hidden[:, :-1]).float().transpose(1, 2)  # (sources, vocab, time - 1)
        each = functional.cross_entropy(logits, wanted, reduction="none")
        return {"surprise": (each * real).sum(-1), "tokens": real.sum(-1)}

    def project(self, hidden: Tensor) -> Tensor:
        """(…, dim) -> logits (…, vocabulary)."""
        return self.readout(hidden)

    def blocks(self) -> list[nn.Module]:
        """The layers, for those who recompute, shard or compile them one by one."""
        return list(self.layers)
