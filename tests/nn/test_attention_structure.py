"""Attention structures: equal to torch's attention with the same mask or bias, and receptive fields."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from tiny import VOCAB, config_problems, perturb
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.errors import ConfigError, HeedfulError
from heedful.models.bert import Bert, BertConfig
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.models.gpt import GPT, GPTConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.attention import AttentionBias, SelfAttention
from heedful.nn.decoder_state import expand_rows
from heedful.nn.hooks import record
from heedful.nn.pooling import POOLINGS
from heedful.nn.precision import with_precision
from heedful.nn.structure import (
    CausalStructureConfig,
    CrossStructureConfig,
    FunctionStructure,
    MatrixStructure,
    StructureConfig,
    join,
    make_structure,
    tabulate,
)

TIME, COLUMNS = 12, 4
PLACES = torch.arange(TIME)[None]
KINDS: list[dict[str, Any]] = [
    {"kind": "window", "radius": 2},
    {"kind": "causal"},
    {"kind": "block", "block": 5},
    {"kind": "grid", "columns": COLUMNS, "radius": 1},
    {"kind": "distance", "slope": 0.5},
]
BY_HAND: dict[str, Callable[[int, int], bool | float]] = {  # i, j -> mask or bias
    "window": lambda i, j: abs(i - j) <= 2,
    "causal": lambda i, j: j <= i,
    "block": lambda i, j: i // 5 == j // 5,
    "grid": lambda i, j: max(abs(i // COLUMNS - j // COLUMNS), abs(i % COLUMNS - j % COLUMNS)) <= 1,
    "distance": lambda i, j: -0.5 * abs(i - j),
}


def tiny(family: str, structure: dict[str, Any] | None = None, layers: int = 2) -> Any:
    torch.manual_seed(3)
    chosen: dict[str, Any] = {"structure": structure} if structure else {}
    if family == "bert":
        return perturb(Bert(BertConfig(dim=16, layers=layers, heads=2, position="none", **chosen), VOCAB)).eval()
    chosen["layers"] = ("self-attention",) * layers
    return perturb(Encoder(EncoderConfig(dim=16, heads=2, feed_forward=32, **chosen), VOCAB)).eval()


def reach(model: Any, time: int = TIME) -> Tensor:
    """(query, key): whether the hidden state of a token depends on the embedding of another."""
    vectors: list[Tensor] = []
    hook = model.embedding.register_forward_hook(lambda module, inputs, out: vectors.append(out))
    hidden = model.encode(torch.randint(VOCAB, (1, time), generator=torch.Generator().manual_seed(1)))
    hook.remove()
    direction = torch.randn(hidden.shape[-1], generator=torch.Generator().manual_seed(2))
    rows = [torch.autograd.grad(hidden[0, at] @ direction, vectors[0], retain_graph=True)[0][0] for at in range(time)]
    return torch.stack(rows).abs().sum(-1) > 0


@pytest.mark.parametrize("options", KINDS, ids=lambda options: str(options["kind"]))
def test_every_kind_is_the_formula_of_its_description(options: dict[str, Any]) -> None:
    structure = make_structure(StructureConfig(**options))
    assert structure is not None
    found = structure(PLACES, PLACES)
    values = found.bias if found.mask is None else found.mask
    assert values is not None
    formula = BY_HAND[options["kind"]]
    assert values[0, 0].tolist() == [[formula(i, j) for j in range(TIME)] for i in range(TIME)]


@pytest.mark.parametrize("options", KINDS, ids=lambda options: str(options["kind"]))
@torch.no_grad()
def test_attention_equals_torch_with_the_same_mask_or_bias(options: dict[str, Any]) -> None:
    """One layer of attention, recomputed from its own projections."""
    torch.manual_seed(5)
    attention, x = SelfAttention(16, 2, 8, dropout=0.0), torch.randn(2, TIME, 16)
    structure = make_structure(StructureConfig(**options))
    assert structure is not None
    query, key, value = attention.split(x)
    matrix = torch.tensor([[BY_HAND[options["kind"]](i, j) for j in range(TIME)] for i in range(TIME)])
    reference = functional.scaled_dot_product_attention(query, key, value, matrix)
    out = attention.out(reference.transpose(1, 2).flatten(-2))
    assert_close(attention(query, key, value, structure(PLACES, PLACES)), out, atol=1e-6, rtol=0)
    plain = attention(query, key, value, AttentionBias())
    assert float((plain - out).abs().max()) > 1e-3


@pytest.mark.parametrize("family", ["bert", "encoder"])
@pytest.mark.parametrize("values", ["mask", "bias"])
@torch.no_grad()
def test_a_model_attends_by_the_matrix_in_every_layer_and_never_to_padding(family: str, values: Any) -> None:
    torch.manual_seed(6)
    matrix = (torch.rand(TIME, TIME) < 0.4).float() if values == "mask" else torch.randn(TIME, TIME)
    matrix = matrix.fill_diagonal_(1.0)
    model = tiny(family)
    model.structure = MatrixStructure(TIME, TIME, values)
    model.structure.set(matrix)
    tokens, mask = torch.randint(VOCAB, (2, TIME)), torch.arange(TIME) < torch.tensor([[TIME], [7]])
    with record(model, *(attention.weights for attention in model.attentions())) as recorded:
        padded = model.encode(tokens, mask)
    weights = list(recorded.values())
    assert len(weights) == 2
    for weight in weights:  # (rows, heads, query, key)
        allowed = mask[:, None, None] & (matrix > 0.5 if values == "mask" else torch.ones_like(matrix).bool())
        assert bool((weight[~allowed.expand_as(weight)] == 0).all()) and bool((weight[allowed.expand_as(weight)] > 0).all())
    assert_close(model.encode(tokens[1:, :7])[0], padded[1, :7], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "encoder"])
@torch.no_grad()
def test_masks_and_biases_are_joined(family: str) -> None:
    """The structure of the model and the mask of an input: attention that both allow."""
    both = tiny(family, {"kind": "window", "radius": 3})
    tokens, far = torch.randint(VOCAB, (1, TIME)), tabulate(lambda i, j: (i - j).abs() <= 1, TIME)[None]
    assert_close(both.encode(tokens, attention_mask=far), tiny(family, {"kind": "window", "radius": 1}).encode(tokens))
    mask, bias = torch.ones(1, 1, 2, 2).bool(), torch.ones(1, 1, 2, 2)
    joined = join(AttentionBias(mask), None, AttentionBias(~mask, bias=bias), AttentionBias(bias=bias))
    assert joined.mask is not None and not joined.mask.any()
    assert joined.bias is not None and torch.equal(joined.bias, 2 * bias)


@pytest.mark.parametrize("family", ["bert", "encoder"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_grid_window_has_a_receptive_field_of_layers_times_radius(family: str, layers: int) -> None:
    columns, rows = 6, 5
    found = reach(tiny(family, {"kind": "grid", "columns": columns, "radius": 1}, layers), columns * rows)
    wide = tabulate(
        lambda i, j: torch.maximum((i // columns - j // columns).abs(), (i % columns - j % columns).abs()) <= layers,
        columns * rows,
    )
    assert torch.equal(found, wide) and not bool(wide.all())


@pytest.mark.parametrize("layers", [1, 2])
def test_the_encoder_of_a_transformer_has_the_structure_too(layers: int) -> None:
    torch.manual_seed(7)
    options: dict[str, Any] = {"dim": 16, "layers": layers, "heads": 2, "feed_forward": 32, "position": "none"}
    structure = StructureConfig(kind="window", radius=2)
    model = perturb(Transformer(TransformerConfig(structure=structure, **options), VOCAB, VOCAB)).eval()
    source, states = torch.randint(VOCAB, (1, TIME)), f"encoder.{layers - 1}.out"
    with record(model, states) as recorded:
        model.start(source, None, room=0)
    before = recorded[states]
    source[0, 0] = (source[0, 0] + 1) % VOCAB
    with record(model, states) as recorded:
        model.start(source, None, room=0)
    changed = (recorded[states] - before).abs().sum(-1)[0] > 0
    assert changed.tolist() == [at <= 2 * layers for at in range(TIME)]
    (problem,) = TransformerConfig(structure=StructureConfig(kind="edges", file="a.csv", positions=4), **options).problems_with(
        shared=True, source=5, target=9
    )
    assert problem.path == "structure.positions"


SOURCE_TIME = 7
DECODERS = ["gpt", "transformer"]


def tiny_decoder(family: str, **options: Any) -> Any:
    torch.manual_seed(11)
    sizes: dict[str, Any] = {"dim": 16, "layers": 2, "heads": 2, "feed_forward": 32, "position": "none"}
    model = {"gpt": GPT, "transformer": Transformer}[family]
    config: Any = {"gpt": GPTConfig, "transformer": TransformerConfig}[family](**(sizes | options))
    return perturb(model(config, VOCAB, VOCAB)).eval()


def set_matrix(model: Any, name: str, values: Any, matrix: Tensor) -> None:
    structure = MatrixStructure(matrix.shape[0], matrix.shape[1], values)
    structure.set(matrix)
    setattr(model, name, structure)


def sparse(rows: int, columns: int) -> Tensor:
    """A mask in which the first row, and so every row of a causal one, allows its first column."""
    mask = torch.rand(rows, columns, generator=torch.Generator().manual_seed(12)) < 0.3
    mask.diagonal().fill_(True)
    return mask | (torch.arange(columns) == 0)[None]


@pytest.mark.parametrize(
    ("family", "name", "weights"),
    [
        ("gpt", "structure", "layers.0.self_attention.weights"),
        ("transformer", "decoder_structure", "decoder.0.self_attention.weights"),
        ("transformer", "cross_structure", "decoder.0.cross_attention.weights"),
    ],
)
@pytest.mark.parametrize("values", ["mask", "bias"])
@torch.no_grad()
def test_weights_of_a_decoder_are_those_without_structure_times_the_mask_or_exponential_of_the_bias(
    family: str, name: str, weights: str, values: Any
) -> None:
    """softmax(s + b) is proportional to softmax(s) exp(b): in the first layer, whose inputs are the same."""
    keys = SOURCE_TIME if name == "cross_structure" else TIME
    matrix = sparse(TIME, keys).float() if values == "mask" else torch.randn(TIME, keys)
    model, target = tiny_decoder(family), torch.randint(VOCAB, (2, TIME))
    source = torch.randint(VOCAB, (2, SOURCE_TIME if family == "transformer" else 0))
    with record(model, weights) as plain:
        model.forced_logits(source, None, target)
    set_matrix(model, name, values, matrix)
    with record(model, weights) as found:
        model.forced_logits(source, None, target)
    expected = plain[weights] * (matrix if values == "mask" else matrix.exp())
    assert_close(found[weights], expected / expected.sum(-1, keepdim=True), atol=1e-6, rtol=0)
    assert float((found[weights] - plain[weights]).abs().max()) > 0.05


@pytest.mark.parametrize("family", DECODERS)
def test_the_gradient_outside_the_structure_of_a_decoder_is_zero(family: str) -> None:
    """A token depends on the tokens that two layers of the mask reach, and on no others; likewise on those of the source."""
    model, own = tiny_decoder(family, **({} if family == "gpt" else {"tie": "none"})), sparse(TIME, TIME)
    set_matrix(model, "structure" if family == "gpt" else "decoder_structure", "mask", own.float())
    own = own.tril().float()
    expected = {"target": own @ own > 0}
    if family == "transformer":
        across = sparse(TIME, SOURCE_TIME).roll(1, 1)
        model.structure = FunctionStructure(lambda i, j: i == j)  # a state of the source depends on its own token alone
        set_matrix(model, "cross_structure", "mask", across.float())
        expected["source"] = own @ across.float() > 0
    vectors: dict[str, Tensor] = {}
    hooks = [
        table.register_forward_hook(lambda module, inputs, out, side=side: vectors.update({side: out}))
        for side, table in model.embeddings().items()
        if side in expected
    ]
    source = torch.randint(VOCAB, (1, SOURCE_TIME if family == "transformer" else 0))
    hidden = model.forced(source, None, torch.randint(VOCAB, (1, TIME))).hidden
    for hook in hooks:
        hook.remove()
    for side, reached in expected.items():
        direction = torch.randn(16, generator=torch.Generator().manual_seed(2))
        rows = [torch.autograd.grad(hidden[0, at] @ direction, vectors[side], retain_graph=True)[0][0] for at in range(TIME)]
        assert torch.equal(torch.stack(rows).abs().sum(-1) > 0, reached)
        assert not bool(reached.tril().all())


@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_steps_with_a_matrix_equal_the_whole_pass(family: str) -> None:
    """For two hypotheses of each source, in chunks of 1 and 3 tokens; a source of a decoder-only model comes first."""
    total = TIME + SOURCE_TIME
    model = tiny_decoder(family, position="relative", relative_clip=2)
    if family == "gpt":
        set_matrix(model, "structure", "bias", torch.randn(total, total).masked_fill(~sparse(total, total), -20.0))
    else:
        set_matrix(model, "decoder_structure", "mask", sparse(TIME, TIME).float())
        set_matrix(model, "cross_structure", "bias", torch.randn(TIME, SOURCE_TIME))
    source, target = torch.randint(VOCAB, (2, SOURCE_TIME)), torch.randint(VOCAB, (4, TIME))
    mask = torch.arange(SOURCE_TIME) < torch.tensor([[SOURCE_TIME], [4]])
    expected = model.forced_logits(source.repeat_interleave(2, 0), mask.repeat_interleave(2, 0), target)
    state, outputs = expand_rows(model.start(source, mask, room=2 * TIME), 2), []
    for begin, end in pairwise((0, 1, 4, 5, 8, 9, TIME)):
        step = model.step(target[:, begin:end].contiguous(), state)
        state = step.state
        outputs.append(model.project(step.hidden))
    assert_close(torch.cat(outputs, 1), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("values", ["mask", "bias"])
@torch.no_grad()
def test_a_source_is_the_beginning_of_the_sequence_that_the_structure_of_a_decoder_only_model_counts(values: Any) -> None:
    """With padding, the target follows the last real token."""
    total = TIME + SOURCE_TIME
    model, matrix = tiny_decoder("gpt"), sparse(total, total).float() if values == "mask" else 3 * torch.randn(total, total)
    set_matrix(model, "structure", values, matrix)
    source, target = torch.randint(VOCAB, (2, SOURCE_TIME)), torch.randint(VOCAB, (2, TIME))
    found = model.forced_logits(source, torch.arange(SOURCE_TIME) < torch.tensor([[SOURCE_TIME], [4]]), target)
    for row, length in enumerate((SOURCE_TIME, 4)):
        joined = torch.cat((source[row, :length], target[row]))[None]
        assert_close(found[row], model.forced_logits(joined[:, :0], None, joined)[0, length:], atol=1e-5, rtol=0)


def test_a_structure_that_a_decoder_cannot_have_is_an_error() -> None:
    edges: dict[str, Any] = {"kind": "edges", "file": "a.csv", "positions": 9}
    problems = config_problems(CausalStructureConfig, **edges)
    assert problems["directed"].startswith("given false, expected true: in causal attention only the later position")
    assert "kind" in config_problems(CausalStructureConfig, kind="causal")
    assert "kind" in config_problems(CrossStructureConfig, **edges)
    matrix: dict[str, Any] = {"kind": "matrix", "file": "a.npy", "positions": 9}
    assert config_problems(CrossStructureConfig, **matrix) == {
        "source_positions": "missing; expected a value for kind 'matrix'"
    }
    given = config_problems(GPTConfig, reach="local", structure=CausalStructureConfig(kind="window"))
    assert given == {
        "structure.kind": "given 'window', expected 'full' in a model whose model.reach is not 'full' in every layer"
    }
    cross = CrossStructureConfig(**matrix, source_positions=4)
    found = TransformerConfig(cross_structure=cross).problems_with(shared=True, source=5, target=10)
    assert [problem.path for problem in found] == ["cross_structure.positions", "cross_structure.source_positions"]


@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_a_decoder_refuses_more_tokens_than_its_matrix_has(family: str) -> None:
    model = tiny_decoder(family)
    set_matrix(model, "structure" if family == "gpt" else "decoder_structure", "mask", torch.ones(4, 4))
    assert model.max_length == (2 if family == "gpt" else 4)
    source = torch.zeros(1, 1 if family == "transformer" else 0).long()
    state = model.start(source, None, room=5)
    state = model.step(torch.zeros(1, 4).long(), state).state
    with pytest.raises(HeedfulError, match=r"a sequence of 5 tokens .* attention structure has 4 positions"):
        model.step(torch.zeros(1, 1).long(), state)


def test_any_function_of_positions_is_a_structure() -> None:
    model = tiny("encoder", layers=1)
    model.structure = FunctionStructure(lambda i, j: (i - j) % 3 == 0)
    assert torch.equal(reach(model), tabulate(lambda i, j: (i - j) % 3 == 0, TIME))
    with pytest.raises(ConfigError, match=r"returned torch\.int64; expected bool, a mask, or floating point"):
        FunctionStructure(lambda i, j: i - j)(PLACES, PLACES)


def test_attention_without_positions_is_equivariant_and_a_structure_of_positions_is_not() -> None:
    order = torch.randperm(TIME, generator=torch.Generator().manual_seed(4))
    tokens = torch.randint(VOCAB, (1, TIME), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        plain, near = tiny("encoder"), tiny("encoder", {"kind": "window", "radius": 2})
        assert_close(plain.encode(tokens[:, order]), plain.encode(tokens)[:, order], atol=2e-6, rtol=0)
        assert float((near.encode(tokens[:, order]) - near.encode(tokens)[:, order]).abs().max()) > 1e-3


@pytest.mark.parametrize("family", ["bert", "encoder"])
@torch.no_grad()
def test_a_copy_in_half_precision_has_about_the_same_states(family: str) -> None:
    tokens = torch.randint(VOCAB, (1, TIME), generator=torch.Generator().manual_seed(4))
    model = tiny(family, {"kind": "distance", "slope": 0.5})
    half = with_precision(model, "bf16", torch.device("cpu"))
    assert_close(half.encode(tokens).float(), model.encode(tokens), atol=0.1, rtol=0.1)


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
@torch.no_grad()
def test_the_pooled_states_of_a_set_do_not_depend_on_its_order(pooling: str) -> None:
    order = torch.randperm(TIME, generator=torch.Generator().manual_seed(8))
    tokens = torch.randint(VOCAB, (1, TIME), generator=torch.Generator().manual_seed(9))
    torch.manual_seed(10)
    pool: Any = POOLINGS[pooling](16)
    cases: list[tuple[Literal["none", "sinusoidal"], bool]] = [("none", True), ("sinusoidal", False)]
    for position, invariant in cases:
        model = Encoder(EncoderConfig(dim=16, layers=("self-attention",) * 2, heads=2, position=position), VOCAB).eval()
        first, second = (pool(model.encode(one), None) for one in (tokens, tokens[:, order]))
        change = float((first - second).abs().max())
        assert change <= 1e-6 if invariant else change > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "matrix", "positions": 4}, "file: missing; expected a value for kind 'matrix'"),
        ({"kind": "edges", "file": "a.csv"}, "positions: missing; expected a value for kind 'edges'"),
        ({"kind": "grid", "radius": 2}, "columns: missing; expected the number of columns of the grid"),
        ({"kind": "window", "slope": 2.0}, "slope: given 2.0, but has no effect because kind 'window' does not use it"),
        ({"radius": 2}, "radius: given 2, but has no effect because kind 'full' does not use it"),
    ],
)
def test_options_that_are_missing_or_have_no_effect_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        StructureConfig(**options)
    assert message in str(caught.value)


def test_layers_that_are_not_attention_have_no_structure() -> None:
    with pytest.raises(ValidationError, match="given 'window', but layer 'lstm' has no such structure"):
        EncoderConfig(layers=("self-attention", "lstm"), structure=StructureConfig(kind="window"))


def test_a_structure_set_in_python_that_a_layer_would_not_apply_is_an_error() -> None:
    tokens, structure = torch.zeros(1, 4).long(), FunctionStructure(lambda i, j: i == j)
    for options in ({"layers": ("lstm",)}, {"layers": ("self-attention",), "causal": True}, {"layers": ("restricted",)}):
        encoder: Any = Encoder(EncoderConfig(dim=16, **options), VOCAB)
        encoder.structure = structure
        with pytest.raises(ConfigError, match=r"does not apply; expected layers of 'self-attention'"):
            encoder.encode(tokens)
    decoder = tiny_decoder("gpt", reach=("full", "local"))
    decoder.structure = structure
    for source in (tokens, tokens[:, :0]):
        with pytest.raises(ConfigError, match=r"expected model\.reach to be 'full' in every layer"):
            decoder.forced_logits(source, None, tokens)


def test_a_sequence_that_is_longer_than_the_matrix_is_an_error() -> None:
    model = tiny("bert", {"kind": "matrix", "file": "a.npy", "positions": 4})
    model.structure.set(torch.ones(4, 4))
    assert model.max_length == 4 and model.encode(torch.zeros(1, 4).long()).isfinite().all()
    with pytest.raises(HeedfulError, match=r"a sequence of 5 tokens .* structure has 4 positions"):
        model.encode(torch.zeros(1, 5).long())
    (problem,) = model.config.problems_with(shared=True, source=0, target=5)
    assert problem.path == "structure.positions" and "expected at least 5" in problem.sentence
