"""Decoder-only models: one stack of causal layers for source and target.

    GPT-1   post-norm, weights N(0, 0.02^2)                                                    Radford et al., 2018
    GPT-2   pre-norm, initial output projections of layers divided by sqrt(2 x layers)         Radford et al., 2019
    T-D     source, separator, target as one sequence; local and compressed attention          Liu et al., 2018

    start   source -> keys and values in slots that all hypotheses share; a language model has no source
    step    tokens + cache -> hidden states

The end token of the source and the start token of the target are the separator. With inputs "vectors", a task embeds its inputs
itself, and vectors of size dim take the place of tokens; such a model has neither vocabulary nor output layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import NonNegativeNumber, Probability, Problem, Size, SmallCount, refuse, unused
from heedful.errors import ConfigError
from heedful.models.family import (
    Architecture,
    FamilyConfig,
    PerLayer,
    PositionName,
    head_problems,
    per_layer,
    refuse_pruned_positions,
)
from heedful.nn.attention import AttentionCore, NoHeads, SelfAttention, join_heads, self_attention
from heedful.nn.attention_pattern import PATTERNS, History, PatternCache, QueryKeyValue
from heedful.nn.blocks import FEED_FORWARDS, NORMS, FeedForward, PreNorm
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings, Tie
from heedful.nn.few_rows import ACTIVATIONS, few_rows_linear, fits_few_rows
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import Linear
from heedful.nn.losses import Loss
from heedful.nn.model import READING, WITHIN, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.positions import POSITIONS, Position, PositionSize, make_attention_bias
from heedful.nn.step_context import StepContext, has_room, next_tokens, whole_sequence
from heedful.nn.structure import CausalStructureConfig, StructureConfig, make_structure, restrict_step, smallest

ReachName = Literal["full", "local", "compressed"]
Reaches = ReachName | tuple[ReachName, ...]
INITIAL_STD = 0.02  # of all weights


class GPTConfig(FamilyConfig):
    """Sizes default to GPT-2's smallest. GPT-1 is norm "post" with 512 positions."""

    architecture: ClassVar[Architecture] = "decoder"
    family: Literal["gpt"] = "gpt"
    """Model family."""
    dim: Size = 768
    """Size of embeddings and hidden states."""
    layers: SmallCount = 12
    """Decoder layers."""
    inputs: Literal["tokens", "vectors"] = "tokens"
    """Tokens of a vocabulary, or vectors of size dim, for tasks that embed their inputs."""
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
    structure: CausalStructureConfig = CausalStructureConfig()
    """Which of the tokens up to itself a token attends to; source and target are one sequence."""
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
    def numeric_inputs(self) -> int:
        return self.dim if self.inputs == "vectors" else 0

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
        for layer, (reach, before, after) in enumerate(zip(self.reaches, self.head_counts, within, strict=True)):
            if reach == "compressed" and after != before:
                sentence = f"layer {layer} has compressed attention, which mixes its heads, so it cannot be pruned"
                raise ConfigError(sentence, hint="train with gates on a model whose layers have reach 'full' or 'local'")
        return {"heads": within, "head_dim": self.resolved_head_dim}

    @property
    def structures(self) -> dict[str, StructureConfig]:
        return {"structure": self.structure}

    @property
    def reaches(self) -> tuple[ReachName, ...]:
        return (self.reach,) * self.layers if isinstance(self.reach, str) else self.reach

    @model_validator(mode="after")
    def _fits_together(self) -> GPTConfig:
        problems = []
        if len(self.reaches) != self.layers:
            given = f"given {list(self.reaches)!r}, expected one pattern or one for each of {self.layers} layers"
            problems.append(Problem("reach", given))
        problems += head_problems(
            self.head_counts, layers=self.layers, dim=self.dim, head_dim=self.head_dim, position=self.position
        )
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        if not problems and ("compressed", 0) in zip(self.reaches, self.head_counts, strict=True):
            problems.append(Problem("heads", "given 0 for a layer with compressed attention, expected at least 1"))
        if "compressed" in self.reaches and self.stride == 1:
            problems.append(Problem("stride", "given 1, which compresses nothing; expected 2 or more"))
        if self.structure.kind != "full" and set(self.reaches) != {"full"}:
            given = f"given {self.structure.kind!r}, expected 'full' in a model whose model.reach is not 'full' in every layer"
            problems.append(Problem("structure.kind", given))
        reasons = {}
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            reasons["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        if "local" not in self.reaches:
            reasons["block"] = "no layer has reach 'local'"
        if "compressed" not in self.reaches:
            reasons["stride"] = "no layer has reach 'compressed'"
        if self.inputs == "vectors":
            reasons |= dict.fromkeys(("tie", "source_loss", "word_dropout"), "a model of vectors has no vocabulary")
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = []
        if source and not shared:
            sentence = "given 'gpt', in which source and target are one sequence; expected tokenizer.shared = true"
            problems.append(Problem("family", sentence))
        needed = 2 * max(source, target) if source else target
        problems += self.structure.length_problems("structure", needed, needed)
        if self.position == "learned" and self.max_positions < needed:
            why = "twice the longer side, since source and target are one sequence" if source else "the sequence length"
            problems.append(Problem("max_positions", f"given {self.max_positions}, expected at least {needed}: {why}"))
        return problems


class FusedLayer(NamedTuple):
    """The parts of a pre-norm layer whose steps consist of four products, each one kernel (nn/few_rows.py)."""

    attention: SelfAttention
    attention_norm: nn.LayerNorm
    feed_forward: FeedForward
    feed_forward_norm: nn.LayerNorm

    def fits(self, x: Tensor) -> bool:
        products = self.attention.project, self.attention.out, self.feed_forward.rise, self.feed_forward.fall
        return all(type(one) is Linear for one in products) and fits_few_rows(x, *(one.weight for one in products))

    def compute(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """attend: projected queries, keys and values -> context vectors."""
        project, out, rise, fall = self.attention.project, self.attention.out, self.feed_forward.rise, self.feed_forward.fall
        projected = few_rows_linear(x, project.weight, project.bias, norm=self.attention_norm)
        x = few_rows_linear(attend(projected), out.weight, out.bias, residual=x)
        activation = self.feed_forward.name
        hidden = few_rows_linear(x, rise.weight, rise.bias, norm=self.feed_forward_norm, activation=activation)
        return few_rows_linear(hidden, fall.weight, fall.bias, residual=x)


class Layer(nn.Module):
    def __init__(self, config: GPTConfig, reach: ReachName, heads: int) -> None:
        super().__init__()
        residual, width = NORMS[config.norm], heads * config.resolved_head_dim
        size = config.stride if reach == "compressed" else config.block
        self.reach = PATTERNS[reach](width, size)
        # the source has hook points of its own, with the same projections
        self.reading = AttentionCore(config.attention_dropout) if heads else None
        self.read = HookPoint()
        self.self_attention = self_attention(config.dim, heads, config.resolved_head_dim, config.attention_dropout)
        self.self_attention_residual = residual(config.dim, config.dropout)
        hidden = config.feed_forward or 4 * config.dim
        self.feed_forward = FEED_FORWARDS[config.activation](config.dim, hidden, config.activation, config.activation_dropout)
        self.feed_forward_residual = residual(config.dim, config.dropout)
        self.out = HookPoint()

    def forward(
        self, x: Tensor, position: Position, step: StepContext, before: Tree, history: History
    ) -> tuple[Tensor, PatternCache]:
        """x (sources, new, dim); before: cached keys and values of this layer; history: those before convolution -> as x, and
        the new keys and values."""
        caches: list[PatternCache] = []

        def attend(attention: SelfAttention, projected: Tensor) -> Tensor:
            qkv = QueryKeyValue(*attention.split_projected(projected))
            assert self.reading is not None, "a layer with heads has hook points for the source"
            core = self.reading if step.is_source else attention.core
            if step.whole:
                context, new = self.reach(core, qkv, position, step.real)
            else:
                context, new = self.attend_to_cache(core, qkv, position, step, before, history)
            caches.append(new)
            return join_heads(context)

        def attend_and_project(x: Tensor) -> Tensor:
            attention = self.self_attention
            if isinstance(attention, NoHeads):
                empty = x.new_zeros(step.rows, step.time, 0, attention.head_dim)
                caches.append(PatternCache(empty, empty, None))
                return attention(x, x, x, None)
            out: Tensor = attention.out(attend(attention, attention.project(x)))
            return out

        fused = self.fused()
        if fused is not None and fused.fits(x):
            x = fused.compute(x, partial(attend, fused.attention))
        else:
            x = self.self_attention_residual(x, attend_and_project)
            x = self.feed_forward_residual(x, self.feed_forward)
        return self.read(x) if step.is_source else self.out(x), caches[0]

    def fused(self) -> FusedLayer | None:
        """The parts for kernels of few rows; None: they do not support this kind of layer."""
        attention, residual = self.self_attention, self.self_attention_residual
        feed_forward, second = self.feed_forward, self.feed_forward_residual
        if isinstance(attention, NoHeads) or not isinstance(feed_forward, FeedForward) or feed_forward.name not in ACTIVATIONS:
            return None
        if not isinstance(residual, PreNorm) or not isinstance(second, PreNorm):
            return None
        return FusedLayer(attention, residual.norm, feed_forward, second.norm)

    def attend_to_cache(
        self, core: AttentionCore, qkv: QueryKeyValue, position: Position, step: StepContext, before: Tree, history: History
    ) -> tuple[Tensor, PatternCache]:
        """Context vectors of new tokens, which attend to cached tokens and to each other, and their keys and values."""
        key, value = (x.transpose(1, 2).reshape(step.rows, step.time, x.shape[1], -1) for x in (qkv.key, qkv.value))
        new = self.reach.make_cache(key, value, history, step.real)  # (rows, time, heads, size)
        rotated = new.key.reshape(step.sources, -1, *new.key.shape[2:]).transpose(1, 2)  # (sources, heads, new, size)
        rotated = position.rotate(rotated, step.query_positions).transpose(1, 2)
        query = position.rotate(qkv.query, step.query_positions)
        new_value = new.value.reshape(step.sources, -1, *new.value.shape[2:])  # (sources, new, heads, size)
        key, value = step.append(before, rotated, new_value)
        assert step.mask is not None, "a step after others has a mask"
        mask = self.reach.restrict_mask(step.mask, step.query_positions, step.key_positions)  # (sources, new, slots)
        positions = step.query_positions, step.key_positions
        bias = make_attention_bias(position, query, *positions, mask[:, None], bias=step.bias)
        return core(query, key, value, bias), PatternCache(rotated, new_value, new.history)

    if TYPE_CHECKING:
        __call__ = forward


class GPT(SequenceModel):
    def __init__(self, config: GPTConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        self.vectors = HookPoint() if config.inputs == "vectors" else None  # (sources, new, dim)
        if self.vectors is None:
            vocab = max(source_vocab, target_vocab)  # they are equal: `problems_with` requires a shared vocabulary
            tie: Tie = "all" if config.tie else "inputs"
            self.embedding = Embeddings(vocab, vocab, config.dim, tie=tie, std=0.0, output_dim=config.dim)
        size = PositionSize(
            dim=config.dim,
            heads=max(config.head_counts),
            head_dim=config.resolved_head_dim,
            limit=config.max_positions,
            clip=config.relative_clip,
            reads_ahead=False,
        )
        self.position = POSITIONS[config.position](size)
        self.structure = make_structure(config.structure)
        self.word_dropout = Dropout(config.word_dropout)
        self.embedding_dropout = Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.output_dropout = Dropout(config.output_dropout)
        self.layers = Layers(Layer(config, *both) for both in zip(config.reaches, config.head_counts, strict=True))
        self.last = NORMS[config.norm].last(config.dim)
        self.initialize()

    def initialize(self) -> None:
        """All weights N(0, 0.02^2); with pre-norm, output projections are scaled down by the number of layers, since no norm
        bounds the sum of their outputs."""
        for module in self.modules():
            if isinstance(module, Linear):
                nn.init.normal_(module.weight, std=INITIAL_STD)
        for table in (self.embedding.target, self.embedding.output) if self.vectors is None else ():
            if table is not None:
                nn.init.normal_(table.weight, std=INITIAL_STD)
        if self.config.norm == "pre":
            for layer in self.layers:
                projections = [] if isinstance(layer.self_attention, NoHeads) else [layer.self_attention.out]
                for projection in (*projections, layer.feed_forward.fall):
                    nn.init.normal_(projection.weight, std=INITIAL_STD / math.sqrt(2 * len(self.layers)))

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return super().embeddings() if self.vectors is None else {}

    def input_vectors(self) -> list[nn.Module]:
        return super().input_vectors() if self.vectors is None else [self.vectors]

    def attentions(self) -> list[AttentionLayer]:
        attentions: list[AttentionLayer] = []
        for at, layer in enumerate(self.layers):
            if layer.reading is not None:
                attentions += self.attention(READING, at, layer.self_attention, layer.reading)
            attentions += self.attention(WITHIN, at, layer.self_attention)
        return attentions

    def layer_outputs(self) -> list[LayerOutput]:
        sides: list[tuple[Literal["source", "target"], int, HookPoint]] = []
        for at, layer in enumerate(self.layers):
            sides += [("source", at, layer.read), ("target", at, layer.out)]
        return [self.layer_output(*side) for side in sides]

    @property
    def limit(self) -> int | None:
        """Maximum number of positions of source and target together."""
        return smallest(self.position.limit, None if self.structure is None else self.structure.limit)

    @property
    def max_length(self) -> int | None:
        """Half of the positions; the other half is for the source."""
        return None if self.limit is None else self.limit // 2

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """As in the base class; a source may have no tokens, and has its padding at the end. A model of vectors has none."""
        sources, length = source.shape[:2]
        if length == 0 and not room:
            return State(None, None)
        memory, positions = None, torch.arange(length, device=source.device).expand(sources, -1)
        if length:
            step = whole_sequence(source, source_mask, is_source=True)
            self.check_positions(length)
            hidden, caches = self.run(source, self.restrict(step), State(None, None))
            pairs, row_state = [(cache.key, cache.value) for cache in caches], [cache.history for cache in caches]
            if self.training and self.config.source_loss and length > 1:
                memory = self.source_nll(hidden, source, source_mask)
        else:
            weight = self.embedding.target.weight if self.vectors is None else next(self.layers.parameters())
            counts, size = self.config.head_counts, self.config.resolved_head_dim
            pairs = [(weight.new_zeros(sources, 0, heads, size),) * 2 for heads in counts]
            row_state = [layer.reach.initial_state(sources, weight) for layer in self.layers]
        owned_slots = positions.new_ones(sources, length, dtype=torch.bool) if source_mask is None else source_mask
        kv_cache = {"layers": pairs, "positions": positions}
        if room:  # padded with zeros: attention weights of empty slots are zero, not skipped
            buffers = [tuple(functional.pad(x, (0, 0, 0, 0, 0, room)) for x in pair) for pair in pairs]
            kv_cache = {"layers": buffers, "positions": functional.pad(positions, (0, room))}
            owned_slots = functional.pad(owned_slots, (0, room))
        return State(memory, row_state, kv_cache, owned_slots, filled=length, reserved=length)

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """As in the base class; of a model of vectors, tokens are vectors (rows, time, dim)."""
        vectors, tokens = tokens, tokens if self.vectors is None else tokens[..., 0]  # tokens (rows, time): their shape counts
        is_first, by_steps = state.kv_cache is None, has_room(state)
        assert by_steps or state.filled == state.reserved, "decoding by steps requires `room` in `start`"
        if is_first and mask is None:
            step = whole_sequence(tokens)
        else:
            sources = tokens.shape[0] if is_first else state.kv_cache["positions"].shape[0]
            step = next_tokens(state, tokens, mask, sources=sources, limit=self.limit)
        self.check_length(step, state)
        step = self.restrict(step)
        x, caches = self.run(vectors.view(step.sources, -1, *vectors.shape[2:]), step, state)
        losses = {}
        if state.memory is not None:
            losses["source"] = Loss(self.config.source_loss * state.memory["nll"].sum(), state.memory["tokens"].sum())
        after = state._replace(
            row_state=None if is_first else [cache.history for cache in caches],
            owned_slots=step.owned_slots if by_steps else state.owned_slots,
            filled=state.filled + tokens.numel() // step.sources,
        )
        return Step(x.view(*tokens.shape, -1), after, losses)

    def run(self, tokens: Tensor, step: StepContext, state: State) -> tuple[Tensor, list[PatternCache]]:
        """tokens (sources, new), or vectors (sources, new, dim) -> hidden states (sources, new, dim), and the new keys and
        values of every layer."""
        embedded = self.embedding.embed("target", tokens) if self.vectors is None else self.vectors(tokens)
        if self.training and self.config.word_dropout:
            embedded = embedded * self.word_dropout(embedded.new_ones(self.embedding.target.num_embeddings, 1))[tokens]
        x = self.embedding_dropout(self.position.embed(embedded, step.query_positions))
        empty: list[None] = [None] * len(self.layers)
        before = empty if state.kv_cache is None else state.kv_cache["layers"]
        histories = (
            [layer.reach.initial_state(step.rows, x) for layer in self.layers] if state.row_state is None else state.row_state
        )
        caches = []
        for layer, buffers, history in zip(self.layers, before, histories, strict=True):
            x, new = layer(x, self.position, step, buffers, history)
            caches.append(new)
        return self.output_dropout(self.last(x)), caches

    def restrict(self, step: StepContext) -> StepContext:
        """A step with the structure of the model."""
        if self.structure is not None and set(self.config.reaches) != {"full"}:
            raise ConfigError("the model has an attention structure; expected model.reach to be 'full' in every layer")
        return restrict_step(step, self.structure)

    def check_length(self, step: StepContext, state: State) -> None:
        """Check the length against the limit; reads a tensor only if the number of slots exceeds it."""
        if self.limit is None or not isinstance(state.filled, int):
            return
        longest = step.time if step.whole else step.key_positions.shape[1]
        if longest > self.limit:
            self.check_positions(longest if step.whole else int(step.query_positions.max()) + 1)

    def check_positions(self, length: int) -> None:
        self.position.check_length(length)
        if self.structure is not None:
            self.structure.check_lengths(length, length)

    def source_nll(self, hidden: Tensor, source: Tensor, source_mask: Tensor | None) -> dict[str, Tensor]:
        """Negative log-likelihood of each source after its first token, and the number of tokens: (sources,) each."""
        target = source[:, 1:]
        real = torch.ones_like(target) if source_mask is None else source_mask[:, 1:].long()
        logits = self.project(hidden[:, :-1]).float().transpose(1, 2)  # (sources, vocab, time - 1)
        nll = functional.cross_entropy(logits, target, reduction="none")
        return {"nll": (nll * real).sum(-1), "tokens": real.sum(-1)}

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
