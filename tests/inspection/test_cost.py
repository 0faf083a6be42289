"""Counted costs equal the formulas, for every family, on the meta device."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, VOCAB, Variant, by_family, tiny_model

from heedful.inspection.measures.cost import Cost, count_costs, on_meta_device, part_of, total
from heedful.inspection.measures.cost_report import (
    Size,
    decoding,
    encoding,
    layer_costs,
    memory,
    parameters_by_part,
    training_step,
)
from heedful.inspection.measures.hardware_limits import measure
from heedful.models import MODELS
from heedful.nn.linear import linear
from heedful.nn.sequence_layers import LayerSize

SIZE = Size(rows=3, source=6, target=7)
SHORT = Size(rows=2, source=3, target=4)
DIM, HIDDEN, LAYERS = 16, 32, 2
PLAIN = Variant("transformer", ())
FLOAT = 4  # bytes


def test_the_work_of_encoding_equals_the_formula() -> None:
    """Per layer and token 4 products with dim x dim and two with dim x hidden; n^2 d twice for attention itself."""
    parts = encoding(tiny_model(PLAIN), SIZE).parts
    tokens = SIZE.rows * SIZE.source
    assert parts["encoder.self_attention"].work == LAYERS * (tokens * 8 * DIM**2 + 4 * tokens * SIZE.source * DIM)
    assert parts["encoder.feed_forward"].work == LAYERS * tokens * 4 * DIM * HIDDEN
    assert parts["decoder.cross_attention"].work == LAYERS * tokens * 4 * DIM**2  # keys and values for the decoder, once


def test_the_work_of_the_last_token_is_one_row_of_attention() -> None:
    parts = decoding(tiny_model(PLAIN), SIZE).parts
    assert parts["decoder.self_attention"].work == LAYERS * SIZE.rows * (8 * DIM**2 + 4 * SIZE.target * DIM)
    assert parts["decoder.cross_attention"].work == LAYERS * SIZE.rows * (4 * DIM**2 + 4 * SIZE.source * DIM)
    assert parts["embedding.readout"].work == SIZE.rows * 2 * DIM * VOCAB


def test_the_backward_pass_costs_two_products_per_product_and_five_per_attention() -> None:
    record = training_step(tiny_model(PLAIN), SIZE)
    forward = sum(cost.work for part, cost in record.parts.items() if part not in ("backward", "update"))
    attention = LAYERS * 4 * SIZE.rows * DIM * (SIZE.source**2 + SIZE.target**2 + SIZE.target * SIZE.source)
    assert record.parts["backward"].work == 2 * (forward - attention) + 5 * attention // 2


def test_a_product_reads_its_factors_and_writes_its_result() -> None:
    layer = linear(8, 24)
    with torch.no_grad(), count_costs(model_on_meta := on_meta_device(layer)) as record:
        model_on_meta(torch.empty(10, 8, device="meta"))
    assert record.parts == {"between": Cost(2 * 10 * 8 * 24, FLOAT * (10 * 8 + 24 * 8 + 24 + 10 * 24))}


def test_the_cache_is_keys_and_values_of_every_layer() -> None:
    used = memory(tiny_model(PLAIN), SIZE)
    numbers = 2 * LAYERS * SIZE.rows * (SIZE.source + SIZE.target) * DIM
    positions = SIZE.rows * SIZE.target * 8  # integers of eight bytes
    assert used.cache == numbers * FLOAT + positions
    parameters = sum(parameter.numel() for parameter in tiny_model(PLAIN).parameters())
    assert (used.weights, used.gradients, used.optimizer) == (parameters * FLOAT, parameters * FLOAT, 2 * parameters * FLOAT)


@pytest.mark.parametrize("variant", by_family(VARIANTS[::8]), ids=str)
def test_every_model_can_be_counted_and_is_unchanged(variant: Variant) -> None:
    model = tiny_model(variant)
    before = [parameter.clone() for parameter in model.parameters()]
    for phase in (training_step, decoding):  # decoding begins with encoding
        cost = total(list(phase(model, SHORT).parts.values()))
        assert cost.work > 0 and cost.traffic > 0
    assert not model.training
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


def test_doubling_the_length_quadruples_scores_and_doubles_the_rest() -> None:
    """Work of one layer of dim d on n tokens: attention n^2 d, windowed attention r n d."""
    growth = {kind.name: kind.twice.work / kind.once.work for kind in layer_costs(LayerSize(dim=16, heads=2, window=8), 32)}
    assert growth["parameter-free"] == 4
    assert 2 < growth["self-attention"] < 4
    assert all(growth[name] == 2 for name in ("lstm", "gru", "convolution", "dilated", "restricted"))


@pytest.mark.parametrize("causal", [False, True])
def test_the_formula_of_a_layer_equals_the_counted_work(causal: bool) -> None:
    size = LayerSize(dim=16, heads=2, window=32, kernel=5, causal=causal)
    for kind in layer_costs(size, 128):
        spelled = kind.products.replace("^", "**").replace(" + ", "+").replace(" - ", "-").replace(" ", "*")
        assert eval(spelled, {"n": 128, "d": 16, "r": 32, "k": 5}) == kind.once.work, kind.name


def test_counting_part_of_a_recurrence_equals_counting_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    size = LayerSize(dim=16, heads=2, window=8)
    split = layer_costs(size, 64)
    monkeypatch.setattr("heedful.inspection.measures.cost_report.PARTS", 1)
    for part, full in zip(split, layer_costs(size, 64), strict=True):
        assert part.once.work == full.once.work and part.twice.work == full.twice.work
        assert part.once.traffic == pytest.approx(full.once.traffic, rel=0.1)


@pytest.mark.parametrize("family", MODELS)
def test_parts_add_up_to_all_parameters_and_all_saved_activations(family: str) -> None:
    model = tiny_model(Variant(family, ()))
    record = training_step(model, SHORT)
    owned = parameters_by_part(model, record.parts)
    assert sum(owned[part] for part in record.parts if part in owned) == sum(one.numel() for one in model.parameters())
    assert sum(map(record.kept_by, {part for part, _ in record.kept.values()})) == memory(model, SHORT).activations
    assert sum(map(record.kept_by, owned)) > 0


def test_a_part_is_the_first_two_names_without_layer_numbers() -> None:
    assert [part_of(path) for path in ("decoder.3.cross_attention.core", "readout", "")] == [
        "decoder.cross_attention",
        "readout",
        "between",
    ]


def test_measured_limits_are_plausible() -> None:
    limits = measure(torch.device("cpu"))
    assert limits.operations > 1e8
    assert limits.ridge == limits.operations / limits.bytes
