"""A model that runs outside of torch: two ONNX graphs, asked as any other model is, by `start`, `step` and `project`.

So search, scoring and evaluation work with it as they stand. All that it knows moves with the row: beams share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.exchange.flat import MEMORY
from heedful.exchange.onnx_graphs import NEXT, START, STEP, need_packages
from heedful.nn.decoder_state import State, Step


class OnnxModel:
    def __init__(self, folder: Path, *, threads: int, max_length: int | None = None) -> None:
        self.max_length = max_length
        self.begin, self.go_on = session(folder / START, threads), session(folder / STEP, threads)
        self.known = [one.name for one in self.begin.get_outputs()]
        self.said = [one.name for one in self.go_on.get_outputs()]

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        real = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        found = dict(zip(self.known, ask(self.begin, {"source": source, "real": real}), strict=True))
        memory = {name: tensor for name, tensor in found.items() if name.startswith(MEMORY)}
        return State(memory, {name: tensor for name, tensor in found.items() if name not in memory})

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """Token by token, whatever the chunk; those that are not real may only stand at the end."""
        rows, row_state, said = tokens.shape[0], state.row_state, []
        memory = {name: x.repeat_interleave(rows // x.shape[0], 0) for name, x in state.memory.items()}
        for token in tokens.unbind(1):
            logits, *after = ask(self.go_on, {"token": token} | memory | row_state)
            row_state = dict(zip((name.removeprefix(NEXT) for name in self.said[1:]), after, strict=True))
            said.append(logits)
        return Step(torch.stack(said, dim=1), state._replace(row_state=row_state), {})

    def project(self, hidden: Tensor) -> Tensor:
        """What `step` says are logits already."""
        return hidden


def session(path: Path, threads: int) -> Any:
    need_packages()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ask(graph: Any, given: Mapping[str, Tensor]) -> list[Tensor]:
    """Only what the graph takes: what no output depends on has gone from it."""
    taken = {one.name for one in graph.get_inputs()}
    return [torch.from_numpy(x) for x in graph.run(None, {name: x.numpy() for name, x in given.items() if name in taken})]
