"""A model's two functions as two ONNX graphs, start.onnx and step.onnx, for sources and rows of any number.

torch.export follows the model's own code once, with sizes that it must not depend on; one that does cannot be exported, and
is refused. The graphs' inputs and outputs are called as in flat.py; what a step answers is called next.… .
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from heedful.errors import ConfigError
from heedful.exchange.flat import MEMORY, SIZES, Axes, Start, Step, axes_of, example

START, STEP = "start.onnx", "step.onnx"
NEXT = "next."
READ = Axes("source", ("rows", "source")), Axes("real", ("rows", "source"))
SAID = Axes("token", ("rows",))
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@torch.no_grad()
def write_graphs(model: nn.Module, folder: Path) -> list[Axes]:
    """Both files; returns what a step takes besides the token."""
    need_packages()
    known = axes_of(model)
    shown = example(model, **SIZES)
    names = [one.name for one in known]
    sizes: dict[str, Any] = {}  # one for each name: axes that have it are of one size
    with quietly():
        reading = traced(
            Start(model), (shown.source, shown.real), dict(zip(("source", "real"), opened(READ, sizes), strict=True))
        )
        put(reading, folder / START, [one.name for one in READ], names)
        shapes = {"token": opened([SAID], sizes)[0], "tensors": opened(known, sizes)}
        saying = traced(Step(model, shown.state), (shown.token, *shown.tensors.values()), shapes)
        after = [NEXT + name for name in names if not name.startswith(MEMORY)]
        put(saying, folder / STEP, [SAID.name, *names], ["logits", *after])
    return known


def need_packages() -> None:
    """Asked before anything else: following a model takes a while."""
    try:
        for name in PACKAGES:
            import_module(name)
    except ImportError as error:
        needed = f"ONNX needs the packages {', '.join(PACKAGES)}; {error.name or 'one'} is not there"
        raise ConfigError(needed, hint="pip install 'heedful[exchange]'") from error


def opened(tensors: Any, sizes: dict[str, Any]) -> tuple[dict[int, Any], ...]:
    """Which axes of these tensors are of any size."""
    return tuple({axis: sizes.setdefault(name, Dim(name)) for axis, name in one.open.items()} for one in tensors)


def traced(function: nn.Module, given: tuple[Any, ...], shapes: dict[str, Any]) -> Any:
    try:
        return torch.export.export(function.eval(), given, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch has several for it
        raise refusal(error) from error


def put(program: Any, path: Path, inputs: list[str], outputs: list[str]) -> None:
    try:
        kv_cache = torch.onnx.export(program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        raise refusal(error) from error
    assert kv_cache is not None, "with dynamo there is a program"
    kv_cache.save(path)


def refusal(error: Exception) -> ConfigError:
    """In one sentence, and with the first of what torch says."""
    said = str(error.__cause__ or error).strip().splitlines()[0]
    return ConfigError(
        "the model as it is configured cannot become an ONNX graph for sequences of any length",
        hint=f"a gpt whose reach is local or compressed cuts them into blocks; torch says: {said}",
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Without torch's remarks on itself and on packages that nobody asked for."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
