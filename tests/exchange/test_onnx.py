"""ONNX graphs compute the model's logits, for numbers of rows and tokens other than those of the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import VOCAB, Variant, config_class, tiny_model
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.exchange.onnx_graphs import write_graphs
from heedful.exchange.onnx_model import OnnxModel
from heedful.nn.decoder_state import expand_rows, select_rows
from heedful.nn.model import SequenceModel

SHAPES = [(1, 1, 1), (4, 13, 9)]  # rows, source tokens, target tokens
# One layer each, because tracing takes seconds per layer; the run of test_exporting.py has two, with
# heads in only one encoder layer, one decoder layer and one cross-attention. The others are exported by make test-benchmarks.
EXPORTED: list[tuple[str, dict[str, Any]]] = [
    (
        "transformer",
        {"heads": (0,), "decoder_heads": (2,), "cross_heads": (4,), "position": "relative", "norm": "pre", "experts": 4},
    ),
    ("gpt", {"position": "alibi"}),
    ("convs2s", {}),
    ("sutskever", {"norm": "layer"}),
]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("bytenet", {"dilations": (1, 2)}),
    ("bahdanau", {"norm": "layer"}),
    ("luong", {"scope": "local-p", "radius": 2}),
    ("mixed", {"encoder": ("lstm",), "decoder": ("gru", "restricted"), "window": 3}),
]
SLOW = [pytest.param(*one, marks=pytest.mark.benchmark) for one in OTHERS]


@pytest.mark.parametrize(("family", "changes"), [*EXPORTED, *SLOW], ids=lambda value: str(value)[:60])
def test_exported_logits_equal_those_of_the_model(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    one = {"layers": 1} if "layers" in config_class(family).model_fields else {}
    model = tiny_model(Variant(family, tuple((one | changes).items())))
    write_graphs(model, tmp_path)
    exported = OnnxModel(tmp_path, threads=1)
    for rows, length, generated in SHAPES:
        source, target = torch.randint(4, VOCAB, (rows, length)), torch.randint(4, VOCAB, (rows, generated))
        real = torch.arange(length) < torch.randint(1, length + 1, (rows, 1))
        with torch.inference_mode():
            expected = model.forced_logits(source, real, target)
            logits = exported.forced_logits(source, real, target)
        assert_close(logits, expected, atol=1e-5, rtol=0)
    if family == "transformer":
        check_reordered_beams(model, exported)


def check_reordered_beams(model: SequenceModel, exported: SequenceModel) -> None:
    """Two hypotheses for each of two sources, reordered after their first token."""
    source, first, second = torch.randint(4, VOCAB, (2, 5)), torch.randint(4, VOCAB, (4, 1)), torch.randint(4, VOCAB, (4, 1))
    logits = []
    for variant in (model, exported):
        with torch.inference_mode():
            state = expand_rows(variant.start(source, None, room=8), 2)
            state = select_rows(variant.step(first, state).state, torch.tensor([1, 0, 2, 2]))
            logits.append(variant.project(variant.step(second, state).hidden))
    assert_close(logits[1], logits[0], atol=1e-5, rtol=0)


def test_a_model_bound_to_one_length_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="with dynamic sequence lengths") as caught:
        write_graphs(tiny_model(Variant("gpt", (("layers", 1), ("reach", ("local",)), ("block", 4)))), tmp_path)
    assert "reach" in str(caught.value) and not list(tmp_path.iterdir())
