"""Export of a model's two functions as ONNX graphs, start.onnx and step.onnx, with dynamic batch size and lengths.

torch.export traces the model's own code once with dynamic sizes; a model whose code depends on these sizes cannot be
exported and raises an error. Inputs and outputs of the graphs are named as in flat.py; outputs of a step are named next.… .
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
from heedful.exchange.flat import MEMORY, SIZES, Axes, Start, Step, example, find_axes
from heedful.models.family import ImageShape

START, STEP = "start.onnx", "step.onnx"
NEXT = "next."
SOURCE = Axes("source", ("rows", "source")), Axes("real", ("rows", "source"))
TOKEN = Axes("token", ("rows",))
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@torch.no_grad()
def write_graphs(model: nn.Module, folder: Path, image: ImageShape | None = None) -> list[Axes]:
    """Write both files; return the state inputs of a step. image: the shape of a source of pixels; None: it is tokens."""
    require_packages()
    state_axes = find_axes(model, image)
    inputs = example(model, image, **SIZES)
    source = {"source": inputs.source} if inputs.real is None else {"source": inputs.source, "real": inputs.real}
    axes_of_source = SOURCE if image is None else (Axes("source", ("rows", *image)),)
    names = [axes.name for axes in state_axes]
    sizes: dict[str, Any] = {}  # axis name -> its torch.export.Dim
    with quietly():
        source_shapes = dict(zip(source, dynamic_axes(axes_of_source, sizes), strict=True))
        start = trace(Start(model), tuple(source.values()), source_shapes)
        write_graph(start, folder / START, list(source), names)
        shapes = {"token": dynamic_axes([TOKEN], sizes)[0], "tensors": dynamic_axes(state_axes, sizes)}
        step = trace(Step(model, inputs.state), (inputs.token, *inputs.tensors.values()), shapes)
        after = [NEXT + name for name in names if not name.startswith(MEMORY)]
        write_graph(step, folder / STEP, [TOKEN.name, *names], ["logits", *after])
    return state_axes


def require_packages() -> None:
    """Raise if a package is missing, before the slow tracing."""
    try:
        for name in PACKAGES:
            import_module(name)
    except ImportError as error:
        missing = f"ONNX export requires the packages {', '.join(PACKAGES)}; {error.name or 'one'} is not installed"
        raise ConfigError(missing, hint="install them: pip install 'heedful[exchange]'") from error


def dynamic_axes(tensors: Any, sizes: dict[str, Any]) -> tuple[dict[int, Any], ...]:
    """Return {axis: Dim} of the dynamic axes of each tensor."""
    return tuple({axis: sizes.setdefault(name, Dim(name)) for axis, name in axes.open.items()} for axes in tensors)


def trace(function: nn.Module, inputs: tuple[Any, ...], shapes: dict[str, Any]) -> Any:
    try:
        return torch.export.export(function.eval(), inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch raises several types
        raise export_error(error) from error


def write_graph(program: Any, path: Path, inputs: list[str], outputs: list[str]) -> None:
    try:
        exported = torch.onnx.export(program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        raise export_error(error) from error
    assert exported is not None, "with dynamo=True a program is returned"
    exported.save(path)


def export_error(error: Exception) -> ConfigError:
    """Return a ConfigError with the first line of torch's message."""
    message = str(error.__cause__ or error).strip().splitlines()[0]
    return ConfigError(
        f"this model cannot be exported to an ONNX graph with dynamic sequence lengths: {message}",
        hint="train a gpt whose model.reach is not local or compressed, which split sequences into blocks",
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress torch's warnings about itself and about optional packages."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
