"""The processes that train one run together, one rank each, started by `heed train --processes N` or by torchrun.

Each rank computes the gradient of its share of every batch. Gradients are summed in the order of the ranks:

    all-to-all    rank r receives slice r of every rank's gradient
    add           g_0 + g_1 + … + g_(n-1), in this order
    all-gather    every rank receives all slices of the sum

The two exchanges move data only, so the result has the same bits whatever the network, the backend and the time of arrival.
Their volume is that of a ring all-reduce. All ranks then apply the same update and keep the same weights.

A rank that ends breaks the connections of the others, whose next exchange raises `RankLost`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from heedful.errors import RankLost
from heedful.nn.torch_private import all_gather

Value = TypeVar("Value")

STEP_TIMEOUT = timedelta(minutes=30)  # of an exchange in an update: longer means that a rank hangs
PATIENT_TIMEOUT = timedelta(days=7)  # while one rank prepares data, validates or writes
BROKEN = ("gloo", "NCCL", "onnection", "TCPStore")  # words of the errors of broken connections that have no type of their own
PORT = "heedful/port"
CONNECT_ATTEMPTS, CONNECT_SECONDS = 600, 0.5
BUCKET = 2**23  # elements of gradients that are exchanged at a time


class Ranks:
    """This process among those of the run; alone, it is rank 0 of 1 and nothing is exchanged."""

    rank = 0
    size = 1
    exchanges = False  # whether there is a process group, of one rank or more
    sharded = False  # whether each rank has a part of every weight (FSDP), instead of all weights (DDP)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes the run folder and prints."""
        return self.rank == 0

    def maximum(self, values: Sequence[int]) -> list[int]:
        """The maximum of each value over all ranks."""
        return list(values)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.maximum([int(flag)])[0])

    def from_first(self, function: Callable[[], Value]) -> Value:
        """The result of a function that rank 0 alone calls, on every rank."""
        return function()

    def wait_for_first(self) -> None:
        """Wait until rank 0 has come here."""
        self.from_first(bool)

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The tensors of rank 0, in the memory of the CPU of every rank; other ranks pass None."""
        assert tensors is not None
        return dict(tensors)

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite these tensors with those of rank 0."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, in the order of the ranks."""


class Group(Ranks):
    """A rank of a process group."""

    exchanges = True

    def __init__(self, device: torch.device, *, sharded: bool = False) -> None:
        """Join the group that the environment describes, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
        self.sharded = sharded
        self.rank, self.size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        local = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.size)))
        own_gpu = device.type == "cuda" and local <= torch.cuda.device_count()
        self.backend = "cpu:gloo,cuda:nccl" if own_gpu else "gloo"
        # Over gloo, gradients on a GPU are exchanged through the memory of the CPU.
        self.device = device if own_gpu else torch.device("cpu")
        with lost_ranks():
            distributed.init_process_group(
                self.backend, timeout=STEP_TIMEOUT, store=make_store(self.rank), rank=self.rank, world_size=self.size
            )
            self.patient = distributed.new_group(backend="gloo", timeout=PATIENT_TIMEOUT)

    def maximum(self, values: Sequence[int]) -> list[int]:
        tensor = torch.tensor(values, dtype=torch.int64)
        with lost_ranks():
            distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return tensor.tolist()

    def from_first(self, function: Callable[[], Value]) -> Value:
        holder: list[Any] = [function() if self.first else None]
        with lost_ranks():
            distributed.broadcast_object_list(holder, 0, group=self.patient, device=torch.device("cpu"))
        result: Value = holder[0]
        return result

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        own = {} if tensors is None else {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        described = self.from_first(lambda: [(name, tensor.dtype, tensor.shape) for name, tensor in own.items()])
        received = own if self.first else {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in described}
        with lost_ranks():
            for tensor in received.values():
                distributed.broadcast(tensor, 0, group=self.patient)
        return received

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        named = {str(number): tensor for number, tensor in enumerate(tensors)}
        for tensor, received in zip(tensors, self.share_tensors(named).values(), strict=True):
            tensor.detach().copy_(received)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        with lost_ranks():
            exchanges = [Exchange(bucket, self) for bucket in fill_buckets(tensors)]
            for exchange in exchanges:
                exchange.add()
            for exchange in exchanges:
                exchange.finish()


class Exchange:
    """The sum of one bucket of tensors; several exchanges overlap."""

    def __init__(self, tensors: Sequence[Tensor], group: Group) -> None:
        self.tensors, self.group = tensors, group
        self.count = sum(tensor.numel() for tensor in tensors)
        self.slice = -(-self.count // group.size)  # elements that each rank adds up
        self.flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        self.flat = torch.nn.functional.pad(self.flat, (0, self.slice * group.size - self.count))
        self.sent = self.flat if self.flat.device == group.device else self.flat.to(group.device)
        self.received = torch.empty_like(self.sent)
        self.work = distributed.all_to_all_single(self.received, self.sent, async_op=True)

    def add(self) -> None:
        self.work.wait()
        total, *others = self.received.view(self.group.size, self.slice)
        for other in others:
            total += other
        self.work = all_gather(self.sent, total.contiguous(), async_op=True)

    def finish(self) -> None:
        self.work.wait()
        total = self.sent.to(self.flat.device)[: self.count]
        parts = torch.split(total, [tensor.numel() for tensor in self.tensors])
        for tensor, part in zip(self.tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))


def fill_buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive tensors into buckets of at least BUCKET elements, except the last: a function of their sizes alone."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(one.numel() for one in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


@contextmanager
def join(distributed_by: str, device: torch.device) -> Iterator[Ranks]:
    """Join the other processes of the run; distributed_by: training.distributed, where "auto" is nothing for one process."""
    if distributed_by == "auto" and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    yield Group(device, sharded=distributed_by == "fsdp")
    distributed.destroy_process_group()  # after an error, the end of the process closes the connections


def make_store(rank: int) -> distributed.Store:
    """The table in which ranks publish their addresses, at MASTER_ADDR.

    That of torchrun still has the addresses of processes that were killed, and gloo would connect to them after a restart.
    There rank 0 starts a new table and publishes its port; a port that does not answer is that of an earlier attempt."""
    if "MASTER_ADDR" not in os.environ:  # one process, started by itself
        return distributed.HashStore()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return distributed.TCPStore(host, port, is_master=rank == 0, timeout=STEP_TIMEOUT)
    shared = distributed.TCPStore(host, port, is_master=False)
    if rank == 0:
        own = distributed.TCPStore(host, 0, is_master=True, timeout=STEP_TIMEOUT)
        shared.set(PORT, str(own.port))
        return own
    for _ in range(CONNECT_ATTEMPTS):
        published = int(shared.get(PORT))
        try:
            socket.create_connection((host, published), timeout=CONNECT_SECONDS).close()
            return distributed.TCPStore(host, published, is_master=False, timeout=STEP_TIMEOUT)
        except OSError:
            time.sleep(CONNECT_SECONDS)
    raise RankLost(f"rank 0 does not answer at {host}", hint="check the network between the machines")


def local_rank() -> int:
    """The number of this process among those on the same machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def lost_ranks() -> Iterator[None]:
    """Raise the error of a broken or timed-out connection as RankLost."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and not any(word in str(error) for word in BROKEN):
            raise
        reason = str(error).strip().splitlines()[0]
        raise RankLost(
            f"lost the connection to another process of the run ({reason})",
            hint="the message of the process that ended first names the cause; run the same command again to continue",
        ) from error
