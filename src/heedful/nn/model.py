"""The base classes of models, and what a model declares about its own structure.

    Model            attentions(), layer_outputs(), embeddings(): inspection, pruning and exchange read these, so that none
                     of them parses the names of hook points or asks for the family
    SequenceModel    `start` encodes the source, `step` predicts the next token: encoder-decoders and decoder-only models
    EncoderModel     `encode` turns inputs into hidden states: encoder-only models
    ModelWithHead    a model, `body`, and what a task predicts from its hidden states

A family lists its attention with `self.attention(kind, layer, module)`, and its layer outputs with
`self.layer_output(side, layer, hook_point)`; names of hook points are found by identity.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.nn.decoder_state import State, Step
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint, hook_points

AnyModule = TypeVar("AnyModule", bound=nn.Module)
BODY = "body."  # prefix of the names of weights and hook points of a model with a head
Side = Literal["source", "target", "both"]  # both: the source, then the target, in one sequence


class AttentionKind(NamedTuple):
    """A kind of attention: its name and the sequences of its queries and keys."""

    name: str
    queries: Side
    keys: Side


ENCODER = AttentionKind("encoder", "source", "source")
DECODER = AttentionKind("decoder", "target", "target")
CROSS = AttentionKind("cross", "target", "source")
UTTERANCE = AttentionKind("utterance", "target", "source")  # within each utterance of the source, a head for each
READING = AttentionKind("reading", "source", "source")  # a decoder-only model over its source
WITHIN = AttentionKind("within", "target", "both")  # a decoder-only model over source and target
SELF = AttentionKind("self", "target", "target")  # an encoder-only model, in both directions; its text is the target
ATTENTION_KINDS = (ENCODER, DECODER, CROSS, UTTERANCE, READING, WITHIN, SELF)  # in the order of tables


class AttentionLayer(NamedTuple):
    """The attention of one kind in one layer of a model."""

    kind: AttentionKind
    layer: int
    heads: int
    name: str  # path of the attention in the model; it owns the two hook points below
    module: nn.Module  # with the projections of queries, keys and values
    core: nn.Module  # computes weights and context vectors
    out: nn.Module | None  # output projection of all heads

    @property
    def weights(self) -> str:
        """Name of the hook point of the weights, (rows, heads, query, key)."""
        return f"{self.name}.weights"

    @property
    def context(self) -> str:
        """Name of the hook point of the context vectors, (rows, heads, query, head_dim)."""
        return f"{self.name}.context"


class LayerOutput(NamedTuple):
    """The hook point of a layer's output, (rows, position, dim)."""

    side: Literal["source", "target", "state"]  # whose tokens are its positions; state: vectors between encoder and decoder
    layer: int
    name: str  # of the hook point


class PoolingAttention(NamedTuple):
    """Attention that pools the vectors of a level into one vector."""

    level: str  # what its vectors belong to: words, sentences, …
    weights: str  # name of the hook point of its weights, (rows, time)


class Model(nn.Module):
    """A model that declares its structure. The defaults are those of a model without attention and without text."""

    @property
    def base_model(self) -> Model:
        """The model without the head of a task."""
        return self

    def attentions(self) -> list[AttentionLayer]:
        """The attention of every layer that has heads, in the order of the model."""
        return []

    def layer_outputs(self) -> list[LayerOutput]:
        """The outputs of all layers, in the order of the model."""
        return []

    def poolings(self) -> list[PoolingAttention]:
        """The attention that pools states into one vector, the lowest level first."""
        return []

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        """The embedding of each side's tokens; a shared one is listed for both."""
        return {}

    def input_vectors(self) -> list[nn.Module]:
        """The modules whose outputs are the vectors of the input tokens, each once; by default the embeddings."""
        return list(dict.fromkeys(self.embeddings().values()))

    def forced(self, source: Tensor | None, source_mask: Tensor | None, target_in: Tensor) -> Step:
        """Hidden states of a whole text: target_in (rows, time) -> (rows, time, dim); source None: the model has no source."""
        raise NotImplementedError

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of all predictions of a training step: source (rows, source time), target (rows, target time), without
        padding -> (…, classes)."""
        raise NotImplementedError

    def blocks(self) -> Sequence[nn.Module]:
        """The layers, as units of activation checkpointing, sharding and compilation."""
        raise NotImplementedError

    def attention(
        self, kind: AttentionKind, layer: int, module: nn.Module, core: nn.Module | None = None
    ) -> Iterator[AttentionLayer]:
        """Declare an attention module; nothing where its heads are pruned. core: computes the weights, if not the module."""
        owner: Any = core or module
        if not hasattr(owner, "weights"):
            return
        heads: int = getattr(module, "heads", 1)
        name: str = self.path_of(owner.weights).removesuffix(".weights")
        yield AttentionLayer(kind, layer, heads, name, module, getattr(owner, "core", owner), getattr(module, "out", None))

    def layer_output(self, side: Literal["source", "target", "state"], layer: int, point: HookPoint) -> LayerOutput:
        return LayerOutput(side, layer, self.path_of(point))

    def path_of(self, module: nn.Module) -> str:
        """The path of a submodule."""
        paths: dict[nn.Module, str] = {other: name for name, other in self.named_modules()}
        return paths[module]


class SequenceModel(Model):
    """A model of a target sequence, given a source or none."""

    embedding: Embeddings

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {"source": self.embedding.table("source"), "target": self.embedding.table("target")}

    @property
    def max_length(self) -> int | None:
        """Maximum number of target tokens; None: unlimited."""
        return None

    def set_turns(self, separator: int, turns: int) -> None:
        """Set the token that separates the turns of a dialogue in the source, and their maximum number. To most families it
        is a token like any other."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """Encode the source. source (sources, time), source_mask (sources, time), None: no padding; room: slots of the cache
        for all rows of a source, 0: a single `step` with the whole target."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """Decode tokens (rows, time): the next token, a chunk, or a whole target; mask (rows, time): True for real tokens."""
        raise NotImplementedError

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states (…, dim) -> logits (…, target vocabulary)."""
        raise NotImplementedError

    def forced(self, source: Tensor | None, source_mask: Tensor | None, target_in: Tensor) -> Step:
        """A teacher-forced pass over a whole target: target_in (rows, time); source None: the model has no source."""
        return self.step(target_in, self.start(target_in[:, :0] if source is None else source, source_mask, room=0))

    def forced_logits(self, source: Tensor | None, source_mask: Tensor | None, target_in: Tensor) -> Tensor:
        """Logits of a teacher-forced pass: (rows, target time, vocabulary)."""
        return self.project(self.forced(source, source_mask, target_in).hidden)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        return self.forced_logits(source, None, target)


class EncoderModel(Model):
    """A model of the hidden states of a text, without a decoder. The head of a task predicts from them."""

    config: Any
    embedding: nn.Embedding

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {"target": self.embedding}

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens; None: unlimited."""
        return None

    def encode(self, tokens: Tensor, mask: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """tokens (rows, time); mask (rows, time): True for real tokens, None: no padding; segments (rows, time): the text that
        each token belongs to, from 0, None: all belong to one text -> hidden states (rows, time, dim)."""
        raise NotImplementedError

    def fit_inputs(self, vectors: Tensor) -> None:
        """Standardize inputs that are vectors by the mean and the standard deviation of these: (count, features)."""
        raise NotImplementedError

    def first_state(self, hidden: Tensor) -> Tensor:
        """Hidden states (rows, time, dim) -> the state of the first token, which stands for the text: (rows, dim)."""
        return hidden[:, 0]

    def forced(self, source: Tensor | None, source_mask: Tensor | None, target_in: Tensor, **more: Tensor) -> Step:
        """more: further inputs of `encode`."""
        return Step(self.encode(target_in, **more), State(None, None), {})


class ModelWithHead(Model):
    """A model with the head of a task. The weights of `body` are those that another task can start from."""

    body: Model

    @property
    def base_model(self) -> Model:
        return self.body

    def attentions(self) -> list[AttentionLayer]:
        return [attention._replace(name=f"{BODY}{attention.name}") for attention in self.body.attentions()]

    def layer_outputs(self) -> list[LayerOutput]:
        return [output._replace(name=f"{BODY}{output.name}") for output in self.body.layer_outputs()]

    def poolings(self) -> list[PoolingAttention]:
        return [pooling._replace(weights=f"{BODY}{pooling.weights}") for pooling in self.body.poolings()]

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return self.body.embeddings()

    def input_vectors(self) -> list[nn.Module]:
        return self.body.input_vectors()

    def forced(self, source: Tensor | None, source_mask: Tensor | None, target_in: Tensor) -> Step:
        return self.body.forced(source, source_mask, target_in)

    def blocks(self) -> Sequence[nn.Module]:
        return self.body.blocks()


def body_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model without the head of a task, by their names in that model."""
    body = {name.removeprefix(BODY): weight for name, weight in weights.items() if name.startswith(BODY)}
    return body or dict(weights)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Disable dropout; restore modes on exit. A model in evaluation mode is not modified, so threads can share it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def inference_context(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def gradient_context(model: nn.Module) -> Iterator[None]:
    """Disable dropout and enable gradients."""
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        yield


def copy_with_shared_weights(model: AnyModule) -> AnyModule:
    """Copy the modules but share their tensors and the hooks on their hook points. Torch hooks registered on the copy do not
    affect other users of the model."""
    shared: dict[int, Any] = {}
    for module in model.modules():
        tensors = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        shared |= {id(value): value for value in tensors if isinstance(value, Tensor)}
    copied = copy.deepcopy(model, shared)
    for point, original in zip(hook_points(copied).values(), hook_points(model).values(), strict=True):
        point.hooks.extend(original.hooks)
    return copied
