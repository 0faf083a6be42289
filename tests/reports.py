"""A synthetic inspection with tokens that are hard to display, and a decoder of the arrays in its page."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.report import ReportResult
from heedful.inspection.drawing.figure import heatmap
from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.rollout import rollout
from heedful.inspection.measures.trace import Trace, Views, word_maps
from heedful.inspection.page.blocks import Block, Heading, Pictures, Table, Terms, Words
from heedful.inspection.result import Result
from heedful.nn.model import AttentionKind
from heedful.tasks.encoded_example import EncodedExample, Outputs, Tokens

HARD = ["<img/src=x/onerror=alert(1)>", "שלום", "مرحبا", "猫が", "😀", 'a&b"c', "</script><b>", "@data@"]
HARD += [f"word{place}" for place in range(60)]


@dataclass(frozen=True)
class OtherResult(Result):
    """A result with given blocks and data."""

    heading: str
    shown: Sequence[Block]
    data: dict[str, Any]

    @property
    def title(self) -> str:
        return self.heading

    def blocks(self) -> list[Block]:
        return list(self.shown)

    def to_dict(self) -> dict[str, Any]:
        return self.data


def page_of(*others: OtherResult, family: str = "transformer") -> ReportResult:
    """A report of a model without a text."""
    return ReportResult({f"cost{at}" if at else "cost": other for at, other in enumerate(others)}, "a run", family)


def example(source: Tokens | None, target: Tokens, start: str, end: str) -> EncodedExample:
    none = torch.zeros(1, 0, dtype=torch.long)
    outputs = Outputs(none[0], [], none[0], lambda *_: none, lambda ids: [])
    return EncodedExample(source, target, start, end, none, none, outputs)


def inspection(tokens: int, layers: int, heads: int) -> ReportResult:
    """A report of attention and one more section."""
    data = {"parts": [{"part": "<b>encoder</b>", "parameters": 123456, "share": 0.25}], "machine": "two cores"}
    return ReportResult({"attention": attention(tokens, layers, heads), "cost": OtherResult("Cost", blocks(), data)}, "a", "b")


def attention(tokens: int, layers: int, heads: int) -> AttentionResult:
    """An encoder, a decoder and their cross-attention, sharp as trained weights; source and target are the same tokens."""
    draws = torch.Generator().manual_seed(1)
    text = " ".join(HARD[:tokens])
    both = Tokens(text, list(range(tokens)), HARD[:tokens], list(range(tokens)))
    time = tokens + 1

    def weights(*, causal: bool = False) -> Tensor:
        scores = torch.randn(heads, time, time, generator=draws) * 3
        if causal:
            scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -math.inf)
        return scores.softmax(-1)

    maps = []
    for layer in range(layers):
        maps += [
            AttentionMap(
                f"encoder.{layer}.self_attention.weights", AttentionKind("encoder", "source", "source"), layer, weights()
            ),
            AttentionMap(
                f"decoder.{layer}.self_attention.weights",
                AttentionKind("decoder", "target", "target"),
                layer,
                weights(causal=True),
            ),
            AttentionMap(
                f"decoder.{layer}.cross_attention.weights", AttentionKind("cross", "target", "source"), layer, weights()
            ),
        ]
    trace = Trace(example(both, both, "<s>", "</s>"), maps)
    norms = [torch.rand(heads, 1, time, generator=draws) * 4 for _ in maps]
    return AttentionResult(trace, Views(norms, rollout(maps), word_maps(trace)), facts=["transformer", "synthetic"])


def blocks() -> list[Any]:
    """One of each kind; the table and one of the figures are wider than a phone."""
    names = [f"column number {at}" for at in range(12)]
    rows = [("part", "share", *names), ("<b>encoder</b>", "25%", *["123,456"] * 12), ("decoder", "75%", *["0"] * 12)]
    pictures = [
        heatmap(torch.eye(8), "abcdefgh", "abcdefgh", "narrow heatmap"),
        heatmap(torch.eye(40), HARD[:40], HARD[:40], "wide heatmap"),
    ]
    text = [Words("What it costs."), Words("A warning.", "note"), Heading("A training step"), Terms({"share": "of 1"})]
    return [*text, Table(rows, "parts", {1: [0.25, 0.75]}), Pictures(pictures, "Rows: queries; columns: keys.")]


def alone(tokens: int, layers: int) -> AttentionResult:
    """Inspection of a text without a source; with 0 layers, of a model without attention."""
    text = Tokens(" ".join(HARD[:tokens]), list(range(tokens)), HARD[:tokens], list(range(tokens)))
    kind = AttentionKind("within", "target", "both")
    weights = torch.ones(2, tokens + 1, tokens + 1).tril()
    maps = [
        AttentionMap(f"layers.{layer}.self_attention.weights", kind, layer, weights / weights.sum(-1, keepdim=True))
        for layer in range(layers)
    ]
    trace = Trace(example(None, text, "</s>", "…"), maps)
    return AttentionResult(trace, Views([torch.ones(2, 1, tokens + 1) for _ in maps], rollout(maps), {}), facts=["gpt"])


def as_numbers(content: dict[str, Any]) -> list[Tensor]:
    """Decode the arrays of a page, as its script does."""
    data = zlib.decompress(base64.b64decode(content["numbers"]))
    arrays, at = [], 0
    for coding, *shape in content["arrays"]:
        count, size = math.prod(shape), 4 if coding == "f32" else 2
        planes = [data[at + plane * count : at + (plane + 1) * count] for plane in range(size)]
        at += size * count
        joined = bytearray(byte for group in zip(*planes, strict=True) for byte in group)
        values = torch.frombuffer(joined, dtype=torch.float32 if coding == "f32" else torch.uint16)
        arrays.append((values if coding == "f32" else values.double() / 10_000).float().view(shape))
    assert at == len(data)
    return arrays
