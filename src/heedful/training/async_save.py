"""Asynchronous saving: tensors are copied to memory that training does not change, and a thread writes them.

On a GPU the copies go to pinned memory, in the order of the kernels: training continues while they are made, and the next
update starts after them. One checkpoint is written at a time; the next save waits for it. Its error is raised by the next
update. The files are written as always (checkpoint.py), so a process that is killed leaves a complete checkpoint or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread

import torch
from torch import Tensor

TensorsByStem = Mapping[str, Mapping[str, Tensor]]


class Snapshots:
    """Copies tensors to buffers in the memory of the CPU, which every snapshot uses again."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, str], Tensor] = {}

    def take(self, tensors: TensorsByStem) -> tuple[dict[str, dict[str, Tensor]], Callable[[], None]]:
        """The copies, and a function that waits until they are complete; tied tensors have one copy."""
        copies: dict[object, Tensor] = {}
        snapshot: dict[str, dict[str, Tensor]] = {}
        for stem, named in tensors.items():
            snapshot[stem] = {}
            for name, tensor in named.items():
                view = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (stem, name)
                if view not in copies:
                    copies[view] = self.buffer((stem, name), tensor).copy_(tensor.detach(), non_blocking=True)
                snapshot[stem][name] = copies[view]
        if not any(tensor.is_cuda for named in tensors.values() for tensor in named.values()):
            return snapshot, lambda: None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return snapshot, event.synchronize

    def buffer(self, key: tuple[str, str], like: Tensor) -> Tensor:
        found = self.buffers.get(key)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            found = self.buffers[key] = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        return found


class BackgroundWriter:
    """Calls one function at a time in a thread."""

    def __init__(self) -> None:
        self.snapshots = Snapshots()
        self.thread: Thread | None = None
        self.error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Call the function in a thread, after the previous one has ended."""
        self.wait()

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self.error = error

        self.thread = Thread(target=run, name="checkpoint-writer")
        self.thread.start()

    def check(self) -> None:
        """Raise the error of a function that has failed."""
        if self.thread is not None and not self.thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait for the function, and raise its error."""
        self.close()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for the function; an error stays unreported, because another one ends the run."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
