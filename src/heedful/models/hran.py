"""Hierarchical recurrent attention over the turns of a dialogue: words -> utterances -> reply ("Hierarchical Recurrent
Attention Network for Response Generation", Xing et al., 2018).

    words         h_ij = BiGRU(embeddings of utterance i)
    at step t     a_ij = softmax_j(v . tanh(W [s_{t-1}; l_{i+1}] + U h_ij))    r_i = sum_j a_ij h_ij       word attention
                  l_i  = GRU(l_{i+1}, r_i), from the last utterance to the first
                  b_i  = softmax_i(v' . tanh(W' s_{t-1} + U' l_i))             c = sum_i b_i l_i           utterance attention
                  s_t  = GRU(s_{t-1}, [y_{t-1}; c])

The separator token ends an utterance; `set_turns` sets it, and until then a source is one utterance. They are numbered
from the last one, 1, so that shorter histories need no padding before them; 0 is padding. Both attentions are declared with
weights of source tokens: a_ij, with a head for each utterance, and a_ij b_i, whose sum over the words of an utterance is b_i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.config.base import Size
from heedful.models.recurrent import DecoderOutput, Recurrent, RecurrentConfig
from heedful.nn.decoder_state import State, Tree
from heedful.nn.grid import grid_sizes, make_grid
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import linear
from heedful.nn.model import CROSS, UTTERANCE, AttentionLayer
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.recurrent import EncoderOutput, Hidden, gru_cell, keep_padded
from heedful.nn.scores import Additive, WeightedSum
from heedful.nn.shared_weight_grad import shared_weight

NO_TOKEN = -1


class HranConfig(RecurrentConfig):
    """Sizes default to the published ones."""

    family: Literal["hran"] = "hran"
    """Model family."""
    embedding: Size | None = 620
    """Size of word embeddings."""
    readout: Size = 500
    """Size of the maxout layer before the output."""

    @property
    def output_dim(self) -> int:
        return self.readout


def number_utterances(source: Tensor, mask: Tensor | None, separator: Tensor, limit: int) -> Tensor:
    """The utterance of each token, from the last one, 1, to at most `limit`; 0 for padding: (sources, time) each."""
    ends = source == separator
    if mask is not None:
        ends = ends & mask
    before = ends.cumsum(1) - ends.long()  # (sources, time): utterances that ended before each token
    last = before[:, -1:] if mask is None else before.masked_fill(~mask, 0).amax(1, keepdim=True)
    numbers = (last - before + 1).clamp(max=limit)
    return numbers if mask is None else numbers.masked_fill(~mask, 0)


def mask_penalty(mask: Tensor) -> Tensor:
    """To be added to scores: 0 where mask is True, else the lowest number, so that a row without True has no NaN."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, torch.finfo(torch.float32).min)


class UtteranceEncoder(nn.Module):
    """A bidirectional GRU over the words of each utterance."""

    def __init__(self, config: HranConfig) -> None:
        super().__init__()
        self.utterances = 1
        gru = CELLS[config.norm]["gru"]
        self.ahead, self.back = gru(config.word_dim, config.dim), gru(config.word_dim, config.dim)
        self.out = HookPoint()

    def forward(self, x: Tensor, numbers: Tensor | None) -> EncoderOutput:
        """x (sources, time, inputs), numbers (sources, time) of the utterances -> (sources, time, 2 dim)."""
        assert numbers is not None, "the utterance of every token is given"
        segments, mask = (numbers - 1).clamp(min=0), numbers > 0
        _, longest = grid_sizes(segments, mask, (self.utterances, x.shape[1]))
        grid = make_grid(segments, mask, (self.utterances, longest))
        words = grid.move(x).flatten(0, 1)  # (sources x utterances, words, inputs)
        real = grid.move(mask[..., None].to(x.dtype)).flatten(0, 1)[..., 0] > 0
        ahead, _ = self.ahead(words, None, real)
        back, _ = self.back(words.flip(1), None, real.flip(1))
        states = torch.cat((ahead, back.flip(1)), dim=-1)  # (sources x utterances, words, 2 dim)
        return EncoderOutput(self.out(grid.move_back(states.view(x.shape[0], self.utterances, *states.shape[1:]))), [])

    def layer_outputs(self) -> list[HookPoint]:
        return [self.out]

    if TYPE_CHECKING:
        __call__ = forward


class HeadSum(WeightedSum):
    """The weighted sum of values for each head; values may differ between queries."""

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """(sources, heads, n, S), (sources, heads, n or 1, S, dim) -> (sources, heads, n, dim)."""
        return self.context((self.weights(weights)[..., None, :] @ values)[..., 0, :])

    if TYPE_CHECKING:
        __call__ = forward


class StepScore(Additive):
    """A score whose query weight is multiplied together with others; a plain layer, so that a copy for inference keeps it."""

    def __init__(self, query_dim: int, key_dim: int, dim: int | None = None) -> None:
        super().__init__(query_dim, key_dim, dim)
        plain = nn.Linear(query_dim, self.query.out_features, bias=False, device="meta")
        plain.weight = self.query.weight
        self.query = plain


class Level(nn.Module):
    """The attention of one level: its score, and hook points of weights and context vectors."""

    def __init__(self, score: StepScore) -> None:
        super().__init__()
        self.score, self.heads = score, 1
        core = HeadSum()
        self.weights, self.context, self.core = core.weights, core.context, core


class Attended(NamedTuple):
    """What one step attended to."""

    context: Tensor  # (rows, dim)
    words: list[Tensor]  # (rows, S): the word weights of each utterance; empty where vectors were given
    utterances: Tensor  # (rows, U): utterance weights
    levels: Tensor  # (rows, U, dim): l of each utterance


AttendStep = Callable[[Tensor, Tensor | None], Attended]  # state (rows, dim), vectors (rows, U, 2 dim) to use instead


class Steps(NamedTuple):
    """What the steps of a decoder computed."""

    hidden: Tensor  # (rows, time, dim)
    contexts: Tensor  # (rows, time, dim)
    state: Hidden
    attended: list[Attended]

    def word_weights(self, sources: int) -> Tensor:
        """(sources, U, n, S): the n queries are the steps of the rows of a source."""
        stacked = torch.stack([torch.stack(one.words, dim=1) for one in self.attended], dim=1)  # (rows, time, U, S)
        return stacked.reshape(sources, -1, *stacked.shape[2:]).transpose(1, 2)

    def utterance_weights(self, sources: int) -> Tensor:
        """(sources, n, U)."""
        stacked = torch.stack([one.utterances for one in self.attended], dim=1)  # (rows, time, U)
        return stacked.view(sources, -1, stacked.shape[2])

    def levels(self, sources: int) -> Tensor:
        """(sources, n, U, dim)."""
        stacked = torch.stack([one.levels for one in self.attended], dim=1)  # (rows, time, U, dim)
        return stacked.view(sources, -1, *stacked.shape[2:])


class HierarchicalRecurrence(nn.Module):
    """The decoder's GRU with the attention before each of its steps."""

    def __init__(self, config: HranConfig) -> None:
        super().__init__()
        words, dim, gru = config.word_dim, config.dim, CELLS[config.norm]["gru"]
        self.dim, self.utterances = dim, 1
        self.word_attention = Level(StepScore(2 * dim, 2 * dim, dim))
        self.utterance = gru(0, dim, fed=2 * dim)
        self.utterance_attention = Level(StepScore(dim, dim))
        self.layer = gru(words, dim, fed=dim)

    def forward(self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None) -> Steps:
        """x (rows, time, words), real (rows, time): padding mask."""
        first = steps = self.run_steps(x, memory, state, real, None, None)
        vectors = self.hook_words(first, memory)
        if vectors is not None:
            steps = self.run_steps(x, memory, state, real, vectors, None)
        contexts = self.hook_utterances(first, steps, memory)
        return steps if contexts is None else self.run_steps(x, memory, state, real, vectors, contexts)

    def run_steps(
        self, x: Tensor, memory: Tree, state: Hidden, real: Tensor | None, vectors: Tensor | None, contexts: Tensor | None
    ) -> Steps:
        """vectors (rows, time, U, 2 dim), contexts (rows, time, dim): utterance and context vectors to use instead of those of
        the attention."""
        step, attend = self.layer.step_function(), self.attend_function(memory, x.shape[0])
        hidden, taken, attended = [], [], []
        for at, gates in enumerate(self.layer.project_inputs(x)):
            found = attend(state[0], None if vectors is None else vectors[:, at])
            context = found.context if contexts is None else contexts[:, at]
            new = step(gates, context, state)
            state = new if real is None else keep_padded(new, state, real[:, at])
            hidden.append(state[0])
            taken.append(context)
            attended.append(found)
        return Steps(torch.stack(hidden, dim=1), torch.stack(taken, dim=1), state, attended)

    def attend_function(self, memory: Tree, rows: int) -> AttendStep:
        """The attention of one step to the utterances of each row. Work that all steps share is done here:

            W [s; l] = W_s s + W_l l         GRU: V r_i + b = sum_j a_ij (V h_ij + b), since weights sum to 1

        Utterances that a source does not have come after all others, so whatever is computed for them has no influence."""
        keys, values, numbers = memory["keys"], memory["values"], memory["numbers"]
        sources, dim, split = values.shape[0], self.dim, 3 * self.dim
        score, among = self.word_attention.score, self.utterance_attention.score
        from_state = shared_weight(torch.cat((score.query.weight[:, :dim], among.query.weight)))  # state -> both queries
        from_level = shared_weight(torch.cat((self.utterance.recurrent, score.query.weight[:, dim:])))  # level -> gates, query
        utterance = self.utterance
        inputs = utterance.multiply_inputs(values)  # (sources, S, 3 dim)
        nothing = keys.new_zeros(4 * dim)
        inside = self.words_of(numbers)
        penalties = mask_penalty(inside).unbind(1)  # (sources, S) each
        present = mask_penalty(inside.any(-1)).repeat_interleave(rows // sources, 0)  # (rows, U)

        def attend(query: Tensor, vectors: Tensor | None) -> Attended:
            words_query, utterance_query = from_state(query, nothing[: 2 * dim]).chunk(2, dim=-1)  # (rows, dim) each
            level, levels, weights = torch.zeros_like(query), [], []
            gates, from_words = nothing[:split].expand(rows, -1), words_query
            for at, penalty in enumerate(penalties):
                if at:
                    gates, more = from_level(level, nothing).split_with_sizes((split, dim), dim=-1)
                    from_words = words_query + more
                if vectors is None:
                    scores = score.compare(from_words.view(sources, -1, dim), keys)  # (sources, n, S)
                    weight = (scores + penalty[:, None]).softmax(-1)
                    weights.append(weight.flatten(0, 1))
                    entering = (weight.to(inputs.dtype) @ inputs).flatten(0, 1)  # (rows, 3 dim)
                else:
                    entering = utterance.multiply_inputs(vectors[:, at])
                level = gru_cell(utterance.input_gates(entering), utterance.hidden_gates(gates), level)
                levels.append(level)
            stacked = torch.stack(levels, dim=1)  # (rows, U, dim)
            scores = among.compare(utterance_query[:, None], among.project_keys(stacked))[:, 0]
            chosen = (scores + present).softmax(-1)  # (rows, U)
            return Attended((chosen.to(stacked.dtype)[:, None] @ stacked)[:, 0], weights, chosen, stacked)

        return attend

    def words_of(self, numbers: Tensor) -> Tensor:
        """(sources, U, S): True for the words of each utterance."""
        return numbers[:, None] == torch.arange(1, self.utterances + 1, device=numbers.device)[:, None]

    def hook_words(self, steps: Steps, memory: Tree) -> Tensor | None:
        """Apply hooks to the word weights of all steps -> the changed vectors of utterances (rows, time, U, 2 dim), or None if
        no hook changes values."""
        core, values = self.word_attention.core, memory["values"]
        if not core.has_hooks:
            return None
        values = values[:, None, None].expand(-1, self.utterances, -1, -1, -1)  # (sources, U, 1, S, 2 dim)
        weights = steps.word_weights(values.shape[0]) * self.words_of(memory["numbers"])[:, :, None]  # (sources, U, n, S)
        vectors = core(weights, values)  # (sources, U, n, 2 dim)
        return vectors.transpose(1, 2).reshape(*steps.hidden.shape[:2], self.utterances, -1) if core.changes else None

    def hook_utterances(self, first: Steps, steps: Steps, memory: Tree) -> Tensor | None:
        """Apply hooks to the utterance weights of all steps, shared among the words of each utterance by their weights in the
        first pass -> the changed context vectors (rows, time, dim), or None if no hook changes values."""
        core, numbers = self.utterance_attention.core, memory["numbers"]
        if not core.has_hooks:
            return None
        sources = numbers.shape[0]
        words = first.word_weights(sources).transpose(1, 2)  # (sources, n, U, S)
        shared = (steps.utterance_weights(sources)[..., None] * words).sum(2)  # (sources, n, S)
        inside = self.words_of(numbers).transpose(1, 2)  # (sources, S, U)
        values = inside[:, None].to(words.dtype) @ steps.levels(sources)  # (sources, n, S, dim): l of each word's utterance
        context = core(shared[:, None], values[:, None])  # (sources, 1, n, dim)
        return context.reshape(*steps.hidden.shape[:2], -1) if core.changes else None

    if TYPE_CHECKING:
        __call__ = forward


class HierarchicalDecoder(nn.Module):
    """State, input embedding and context vector go through a maxout layer."""

    def __init__(self, config: HranConfig) -> None:
        super().__init__()
        dim, words = config.dim, config.word_dim
        self.dim = dim
        self.first = linear(dim, dim)
        self.recurrence = HierarchicalRecurrence(config)
        self.answer = linear(words + 2 * dim, 2 * config.readout)
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, numbers: Tensor | None) -> tuple[Tree, Tree]:
        """numbers (sources, S): the utterance of each token."""
        assert numbers is not None, "the utterance of every token is given"
        values = encoded.hidden
        at = (numbers == 1).int().argmax(1)  # (sources,): the first word of the last utterance
        backwards = values[torch.arange(values.shape[0], device=values.device), at, self.dim :]  # (sources, dim)
        keys = self.recurrence.word_attention.score.project_keys(values)
        return {"keys": keys, "values": values, "numbers": numbers}, (self.first(backwards).tanh(),)

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        steps = self.recurrence(x, memory, row_state, real)
        pairs = self.answer(torch.cat((steps.hidden, x, steps.contexts), dim=-1))  # (rows, time, 2 x readout)
        return DecoderOutput(self.out(pairs.view(*x.shape[:2], -1, 2).amax(-1)), steps.state, {})

    if TYPE_CHECKING:
        __call__ = forward


class Hran(Recurrent):
    encoder: UtteranceEncoder
    decoder: HierarchicalDecoder
    separator: Tensor

    def __init__(self, config: HranConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = UtteranceEncoder(config)
        self.decoder = HierarchicalDecoder(config)
        self.register_buffer("separator", torch.tensor(NO_TOKEN), persistent=False)

    def attentions(self) -> list[AttentionLayer]:
        words = self.attention(UTTERANCE, 0, self.decoder.recurrence.word_attention)
        return [*words, *self.attention(CROSS, 0, self.decoder.recurrence.utterance_attention)]

    def set_turns(self, separator: int, turns: int) -> None:
        self.separator.fill_(separator)
        recurrence = self.decoder.recurrence
        self.encoder.utterances = recurrence.utterances = recurrence.word_attention.heads = turns

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        x = self.dropout(self.embedding.embed("source", source))  # (sources, time, word_dim)
        numbers = number_utterances(source, source_mask, self.separator, self.encoder.utterances)
        return State(*self.decoder.begin(self.encoder(x, numbers), numbers))
