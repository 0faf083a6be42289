"""A graph: nodes as boxes with the color of their label, edges as lines whose width and color are weights.

A box is the paler, the less probable its label is. Widths and colors of lines are relative to the largest weight.

The half of a line that is next to a node is the weight of the edge from this node to the other one.

The layout is by forces (Fruchterman and Reingold, 1991): neighbors attract each other, d^2 / k, and all nodes repel, k^2 / d.
It starts from a spiral and uses no random numbers, so that the same graph always has the same picture. Boxes that would
overlap are then moved apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.inspection.drawing.figure import (
    EDGE,
    FAINT,
    INSIDE,
    LABELS,
    MIN_CAPTION_WIDTH,
    QUIET,
    SMALL,
    Area,
    Figure,
    Label,
    Mark,
    Polyline,
    add_caption,
    color,
    color_bar,
    text_width,
)
from heedful.inspection.drawing.text_heatmap import printable_token

ROUNDS = 200  # of the layout
GRAVITY = 0.3  # keeps parts that are not connected together
SPACING = 96.0  # pixels between nodes, about
BOX, GAP = 34.0, 2.0  # height of a node, and the distance of lines from it
APART, MOST_MOVES = 6.0, 1000  # pixels between boxes, at least, and rounds of moving them apart
PALEST, THINNEST, WIDEST = 0.15, 1.0, 7.0  # of lines: place on the color scale, and width in pixels
WHITE_FROM = 0.8  # probability of a label from which the text in a box is white


class DrawnNode(NamedTuple):
    name: str
    label: str
    probability: float


class DrawnEdge(NamedTuple):
    first: int  # attends
    second: int  # to this node
    weight: float


def graph_figure(
    nodes: Sequence[DrawnNode], edges: Sequence[DrawnEdge], title: str, captions: Sequence[str], labels: Sequence[str] = ()
) -> Figure:
    """labels: all that nodes may have, in the order of their colors; default: those of the nodes."""
    known = list(dict.fromkeys([*labels, *(node.label for node in nodes)]))
    side = SPACING * max(math.sqrt(len(nodes)), 2.0)
    texts = [(printable_token(node.name), printable_token(node.label)) for node in nodes]
    widths = [max(text_width(name), text_width(label, SMALL)) + 12 for name, label in texts]
    left, top = EDGE + max(widths) / 2, 2 * EDGE + 20
    room = np.array([max(side, MIN_CAPTION_WIDTH - 2 * left), side])  # as wide as the caption, at least
    places = separate(layout(len(nodes), [(edge.first, edge.second) for edge in edges]) * room, widths)
    across, down = np.maximum(places.max(0), room)
    at = [(left + x, top + y) for x, y in (places + ((across, down) - places.max(0)) / 2).tolist()]
    most = max((edge.weight for edge in edges), default=1.0) or 1.0
    directed = {(edge.first, edge.second) for edge in edges}
    pale: list[Mark] = []  # halves without a weight
    marks: list[Mark] = []
    for edge in sorted(edges, key=lambda edge: edge.weight):  # strong lines above weak ones
        share = edge.weight / most
        shade = "#{:02x}{:02x}{:02x}".format(*color(max(share, PALEST), "blue"))
        line = between_boxes(at[edge.first], at[edge.second], (widths[edge.first], widths[edge.second]))
        if not line:
            continue
        (x, y), (u, v) = line
        middle = (x + u) / 2, (y + v) / 2
        marks.append(Polyline([(x, y), middle], shade, THINNEST + (WIDEST - THINNEST) * share))
        if (edge.second, edge.first) not in directed:
            pale.append(Polyline([middle, (u, v)], FAINT, THINNEST))
    marks = [Label(EDGE, EDGE, title, 15), *pale, *marks]
    for (x, y), (name, label), width, node in zip(at, texts, widths, nodes, strict=True):
        ink = INSIDE[node.probability > WHITE_FROM]
        tip = f"{name} → {label}: {node.probability:.4f}"
        marks.append(box(x - width / 2, y - BOX / 2, width, BOX, label_color(known.index(node.label), node.probability), tip))
        marks += [Label(x, y - 7, name, anchor="middle", color=ink), Label(x, y + 8, label, SMALL, "middle", color=ink)]
    bottom, full = top + down + BOX / 2 + EDGE, max(across + 2 * left, 2 * EDGE + text_width(title, 15))
    counts = Counter(node.label for node in nodes)
    marks += label_legend([(name, counts[name]) for name in known], EDGE, bottom, full - EDGE)
    bottom = max(mark.y for mark in marks if isinstance(mark, Label)) + 18
    scale = color_bar(EDGE, bottom, ("attention: 0", f"{most:.2g}"), torch.linspace(0, 1, 32), "blue") if edges else []
    return add_caption(Figure(title, full, bottom + 30, marks + scale), captions)


def box(x: float, y: float, width: float, height: float, color: str, tip: str = "") -> Area:
    return Area([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], color, 1.0, tip)


def label_color(number: int, probability: float = 1.0) -> str:
    """The color of a label, mixed with white where it is less probable."""
    parts = (int(LABELS[number % len(LABELS)][at : at + 2], 16) for at in (1, 3, 5))
    return "#{:02x}{:02x}{:02x}".format(*(round(255 - (255 - part) * min(max(probability, 0.0), 1.0)) for part in parts))


def label_legend(counts: Sequence[tuple[str, int]], left: float, y: float, right: float) -> list[Mark]:
    """A square of its color and the number of nodes for each label; a new line where the next one does not fit."""
    marks: list[Mark] = []
    x = left
    for number, (name, count) in enumerate(counts):
        text = f"{printable_token(name)} ({count})"
        if x > left and x + 18 + text_width(text, SMALL) > right:
            x, y = left, y + 18
        marks += [box(x, y - 6, 12, 12, label_color(number)), Label(x + 18, y, text, SMALL, color=QUIET)]
        x += 18 + text_width(text, SMALL) + 14
    return marks


def between_boxes(
    start: tuple[float, float], end: tuple[float, float], widths: tuple[float, float]
) -> list[tuple[float, float]]:
    """The part of a line between two centers that is outside of their boxes; empty: they touch."""
    (x, y), (u, v) = start, end
    across, down = max(abs(u - x), 1e-9), max(abs(v - y), 1e-9)
    first, second = (min((width / 2 + GAP) / across, (BOX / 2 + GAP) / down) for width in widths)  # shares of the line
    if first + second >= 1:
        return []
    return [(x + first * (u - x), y + first * (v - y)), (u - second * (u - x), v - second * (v - y))]


def layout(count: int, edges: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """The place of each node in the unit square: (nodes, 2)."""
    angles = 2 * np.pi * np.arange(count) * 0.381966  # neighbors in the list start apart: the golden angle
    places = 0.5 + 0.5 * np.sqrt((np.arange(count)[:, None] + 0.5) / count) * np.stack((np.cos(angles), np.sin(angles)), 1)
    if count == 1:
        return np.full((1, 2), 0.5)
    near = np.zeros((count, count))
    for first, second in edges:
        near[first, second] = near[second, first] = first != second
    ideal = 0.9 / math.sqrt(count)
    for step in range(ROUNDS):
        apart = places[:, None] - places[None]  # (nodes, nodes, 2)
        distance = np.maximum(np.sqrt((apart**2).sum(-1)), 1e-3)
        force = ideal**2 / distance**2 - near * distance / ideal  # of a vector of length 1, times the distance
        move = (apart * force[..., None]).sum(1) - GRAVITY * (places - 0.5)
        size = np.maximum(np.sqrt((move**2).sum(-1, keepdims=True)), 1e-9)
        places = places + move / size * np.minimum(size, 0.1 * (1 - step / ROUNDS))
    low, high = places.min(0), places.max(0)
    scaled: NDArray[np.float64] = (places - low) / np.maximum(high - low, 1e-9)
    return scaled


def separate(places: NDArray[np.float64], widths: Sequence[float]) -> NDArray[np.float64]:
    """Centers of boxes (nodes, 2), moved until no two boxes overlap, or for `MOST_MOVES` rounds; they start at 0.

    Boxes that overlap move apart along the axis on which they overlap less."""
    count, wide = len(widths), np.asarray(widths)
    needed = np.stack(((wide[:, None] + wide) / 2, np.full((count, count), BOX)), -1) + APART  # (nodes, nodes, 2)
    sides = np.sign(np.arange(count)[:, None] - np.arange(count))  # of two boxes at the same place, the later one is beyond
    for _ in range(MOST_MOVES):
        between = places[:, None] - places
        missing = needed - np.abs(between)
        overlap = (missing > 1e-6).all(-1) & (sides != 0)
        if not overlap.any():
            break
        away = np.where(between == 0, sides[..., None], np.sign(between)) * missing / 2
        chosen = overlap[..., None] & (np.arange(2) == missing.argmin(-1)[..., None])
        places = places + np.where(chosen, away, 0.0).sum(1)
    moved: NDArray[np.float64] = places - places.min(0)
    return moved
