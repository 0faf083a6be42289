"""Attention structures: equal to torch's attention with the same mask or bias, and receptive fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from tiny import VOCAB, perturb
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.errors import ConfigError, HeedfulError
from heedful.models.bert import Bert, BertConfig
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.attention import AttentionBias, SelfAttention
from heedful.nn.hooks import record
from heedful.nn.pooling import POOLINGS
from heedful.nn.precision import with_precision
from heedful.nn.structure import FunctionStructure, MatrixStructure, StructureConfig, join, make_structure, tabulate

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
    model.structure = MatrixStructure(TIME, values)
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


def test_a_sequence_that_is_longer_than_the_matrix_is_an_error() -> None:
    model = tiny("bert", {"kind": "matrix", "file": "a.npy", "positions": 4})
    model.structure.set(torch.ones(4, 4))
    assert model.max_length == 4 and model.encode(torch.zeros(1, 4).long()).isfinite().all()
    with pytest.raises(HeedfulError, match="a sequence of 5 tokens was given to a model whose attention structure has 4"):
        model.encode(torch.zeros(1, 5).long())
    (problem,) = model.config.problems_with(shared=True, source=0, target=5)
    assert problem.path == "structure.positions" and "expected at least 5" in problem.sentence
