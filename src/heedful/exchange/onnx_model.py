"""Two ONNX graphs as a model without weights in torch: `start`, `step` and `project`.

So search, scoring and evaluation work with it unchanged. The entire state is stored per row: beams share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.exchange.flat import MEMORY
from heedful.exchange.onnx_graphs import NEXT, START, STEP, require_packages
from heedful.nn.decoder_state import State, Step
from heedful.nn.model import SequenceModel


class OnnxModel(SequenceModel):
    def __init__(self, folder: Path, *, threads: int, max_length: int | None = None, config: Any = None) -> None:
        """config: of the exported model."""
        super().__init__()
        self.limit, self.config = max_length, config
        self.start_graph, self.step_graph = open_session(folder / START, threads), open_session(folder / STEP, threads)
        self.state_names = [output.name for output in self.start_graph.get_outputs()]
        self.output_names = [output.name for output in self.step_graph.get_outputs()]

    @property
    def max_length(self) -> int | None:
        return self.limit

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        real = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        tensors = dict(zip(self.state_names, run_graph(self.start_graph, {"source": source, "real": real}), strict=True))
        memory = {name: tensor for name, tensor in tensors.items() if name.startswith(MEMORY)}
        return State(memory, {name: tensor for name, tensor in tensors.items() if name not in memory})

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """Decode tokens (rows, time) one by one; padding may only be at the end."""
        rows, row_state, outputs = tokens.shape[0], state.row_state, []
        memory = {name: x.repeat_interleave(rows // x.shape[0], 0) for name, x in state.memory.items()}
        for token in tokens.unbind(1):
            logits, *after = run_graph(self.step_graph, {"token": token} | memory | row_state)
            row_state = dict(zip((name.removeprefix(NEXT) for name in self.output_names[1:]), after, strict=True))
            outputs.append(logits)
        return Step(torch.stack(outputs, dim=1), state._replace(row_state=row_state), {})

    def project(self, hidden: Tensor) -> Tensor:
        """Return the input: `step` returns logits already."""
        return hidden


def open_session(path: Path, threads: int) -> Any:
    require_packages()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_graph(graph: Any, inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """Run a graph, without the inputs that the exporter removed because no output depends on them."""
    names = {entry.name for entry in graph.get_inputs()}
    return [torch.from_numpy(x) for x in graph.run(None, {name: x.numpy() for name, x in inputs.items() if name in names})]
