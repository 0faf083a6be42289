"""The processes that train one run together, one rank each, started by `heed train --processes N` or by torchrun.

Each rank computes the gradient of its share of every batch. Gradients are summed in the order of the ranks:

    all-to-all    rank r receives slice r of every rank's gradient
    add           g_0 + g_1 + … + g_(n-1), in this order
    all-gather    every rank receives all slices of the sum

The two exchanges move data only, so the result has the same bits whatever the network, the backend and the time of arrival.
Their volume is that of a ring all-reduce. All ranks then apply the same update and keep the same weights.

A rank that ends breaks the connections of the others, whose next exchange raises `RankLost`. One that is stopped ends them by
its missing heartbeats (heartbeats.py).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from heedful.errors import HeedfulError, RankLost
from heedful.nn.torch_private import all_gather, copy_all
from heedful.training.heartbeats import Heartbeats

Item = TypeVar("Item")
Value = TypeVar("Value")

JOIN_TIMEOUT = timedelta(minutes=30)  # until all ranks have started
LONG_TIMEOUT = timedelta(days=7)  # while one rank prepares data, validates or writes
BROKEN = ("gloo", "NCCL", "onnection", "TCPStore")  # words of the errors of broken connections that have no type of their own
PORT, JOINED, LEFT = "heedful/port", "heedful/joined", "heedful/left"
LEAVE_TIMEOUT = timedelta(seconds=30)  # until all ranks have closed their connections
CONNECT_ATTEMPTS, CONNECT_SECONDS = 600, 0.5
BUCKET = 2**23  # elements of gradients that are exchanged at a time

log = logging.getLogger(__name__)


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
        """Wait until rank 0 reaches this call."""
        self.from_first(bool)

    def map(self, function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
        """The results of a function for all items, in their order, on every rank. Rank r computes those of items r, r + n, …;
        an error is raised on every rank."""
        return [function(item) for item in items]

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The tensors of rank 0, in the memory of the CPU of every rank; other ranks pass None."""
        assert tensors is not None
        return dict(tensors)

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite these tensors with those of rank 0."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, in the order of the ranks."""

    def gather_rows(self, own: Tensor, total: int) -> Tensor:
        """The first dimension of a batch of `total` rows that was cut into a share for each rank: own (rows, …) -> (total, …).
        Gradients of a row are summed in the order of the ranks, and arrive at the rank that has sent it."""
        return own


class Group(Ranks):
    """A rank of a process group."""

    exchanges = True

    def __init__(self, device: torch.device, *, sharded: bool = False, timeout: float = JOIN_TIMEOUT.total_seconds()) -> None:
        """Join the group that the environment describes, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

        timeout: seconds of an exchange in an update or a save; longer means that a rank hangs"""
        self.sharded = sharded
        self.rank, self.size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        local = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.size)))
        own_gpu = device.type == "cuda" and local <= torch.cuda.device_count()
        self.backend = "cpu:gloo,cuda:nccl" if own_gpu else "gloo"
        # Over gloo, gradients on a GPU are exchanged through the memory of the CPU.
        self.device = device if own_gpu else torch.device("cpu")
        limit = timedelta(seconds=timeout)
        with lost_ranks():
            self.store = make_store(self.rank)
            self.barrier(JOINED, JOIN_TIMEOUT)
            distributed.init_process_group(self.backend, timeout=limit, store=self.store, rank=self.rank, world_size=self.size)
            self.control = distributed.new_group(backend="gloo", timeout=LONG_TIMEOUT)
            # A group of its own, because a checkpoint may be written by a thread while updates use the other groups.
            self.saving = distributed.new_group(backend="gloo", timeout=limit)

    def readable(self, tensor: Tensor) -> Tensor:
        """The tensor, or a copy of it if the backend cannot read the GPU: in pinned memory, which the GPU accesses faster."""
        if tensor.device.type == self.device.type:
            return tensor
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)

    def barrier(self, name: str, timeout: timedelta) -> None:
        """Wait until all ranks have reached the barrier of this name."""
        self.store.set(f"{name}/{self.rank}", "")
        self.store.wait([f"{name}/{rank}" for rank in range(self.size)], timeout)

    def close(self) -> None:
        """Close the connections; rank 0, whose process has the store, ends last."""
        distributed.destroy_process_group()
        del self.control, self.saving  # their threads end with the last reference
        with suppress(RuntimeError):  # a rank that has ended without leaving
            if self.first:
                self.barrier(LEFT, LEAVE_TIMEOUT)
            else:
                self.store.set(f"{LEFT}/{self.rank}", "")

    def maximum(self, values: Sequence[int]) -> list[int]:
        tensor = torch.tensor(values, dtype=torch.int64)
        with lost_ranks():
            distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return tensor.tolist()

    def from_first(self, function: Callable[[], Value]) -> Value:
        holder: list[Any] = [function() if self.first else None]
        with lost_ranks():
            distributed.broadcast_object_list(holder, 0, group=self.control, device=torch.device("cpu"))
        result: Value = holder[0]
        return result

    def map(self, function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
        own: list[Value] | HeedfulError
        try:
            own = [function(item) for item in islice(items, self.rank, None, self.size)]
        except HeedfulError as error:
            own = error
        shares: list[Any] = [None] * self.size
        with lost_ranks():
            distributed.all_gather_object(shares, own, group=self.control)
        for share in shares:
            if isinstance(share, HeedfulError):
                raise share
        return [shares[at % self.size][at // self.size] for at in range(sum(map(len, shares)))]

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        own = {} if tensors is None else {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        described = self.from_first(lambda: [(name, tensor.dtype, tensor.shape) for name, tensor in own.items()])
        received = own if self.first else {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in described}
        with lost_ranks():
            for tensor in received.values():
                distributed.broadcast(tensor, 0, group=self.control)
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

    def gather_rows(self, own: Tensor, total: int) -> Tensor:
        rows: Tensor = GatherRows.apply(own, total, self)  # type: ignore[no-untyped-call]
        return rows


class Exchange:
    """The sum of one bucket of tensors; several exchanges overlap."""

    def __init__(self, tensors: Sequence[Tensor], group: Group) -> None:
        self.tensors, self.group = tensors, group
        self.count = sum(tensor.numel() for tensor in tensors)
        self.slice = -(-self.count // group.size)  # elements that each rank adds up
        self.flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        if missing := self.slice * group.size - self.count:
            self.flat = torch.nn.functional.pad(self.flat, (0, missing))
        self.sent = group.readable(self.flat)
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
        total = self.sent.to(self.flat.device, non_blocking=True)[: self.count]
        parts = torch.split(total, [tensor.numel() for tensor in self.tensors])
        sums = [part.view_as(tensor) for part, tensor in zip(parts, self.tensors, strict=True)]
        copy_all([tensor.detach() for tensor in self.tensors], sums)


class GatherRows(torch.autograd.Function):
    """The rows of all ranks. Every share has as many but the last one, and ranks after it have none: what they send is beyond
    the last row."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, total: int, group: Group) -> Tensor:
        share = -(-total // group.size)
        ctx.rows, ctx.share, ctx.group = len(own), share, group
        part = own.new_zeros(share, *own.shape[1:])
        part[: len(own)] = own
        part = group.readable(part)
        whole = part.new_empty(share * group.size, *own.shape[1:])
        with lost_ranks():
            all_gather(whole, part)
        return whole[:total].to(own.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,), group = gradients, ctx.group
        whole = gradient.new_zeros(ctx.share * group.size, *gradient.shape[1:])
        whole[: len(gradient)] = gradient
        with lost_ranks():
            own = add_slices(group.readable(whole), group.size)
        return own.to(gradient.device)[: ctx.rows], None, None


def add_slices(sent: Tensor, size: int, group: Any = None) -> Tensor:
    """The sum of slice r of all ranks' tensors (size x rows, …), added in the order of the ranks, on rank r: (rows, …)."""
    received = torch.empty_like(sent)
    distributed.all_to_all_single(received, sent, group=group)
    slices = received.view(size, -1, *sent.shape[1:])
    total = slices[0]
    for other in slices[1:]:
        total += other
    return total


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
def join(distributed_by: str, device: torch.device, timeout: float) -> Iterator[Ranks]:
    """Join the other processes of the run; distributed_by: training.distributed, where "auto" is nothing for one process;
    timeout: training.rank_timeout."""
    if distributed_by == "auto" and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    group = Group(device, sharded=distributed_by == "fsdp", timeout=timeout)
    if group.size == 1:
        yield group
    else:
        store = distributed.TCPStore(group.store.host, group.store.port, wait_for_workers=False)
        heartbeats = Heartbeats(store, group.rank, group.size, timeout, lambda lost: end_process(group, lost, timeout))
        yield group
        heartbeats.close()
    group.close()  # after an error, the end of the process closes the connections


def end_process(group: Group, lost: int, timeout: float) -> None:
    """End this process, whose main thread may wait for the lost rank."""
    error = RankLost(
        f"the process of rank {lost} has not responded for {timeout:g} seconds",
        hint="it was stopped, or its machine is lost; run the same command again to continue",
    )
    if group.rank == (1 if lost == 0 else 0):  # one message is enough
        log.error("error: %s", error)
    os._exit(error.exit_code)


def make_store(rank: int) -> distributed.Store:
    """The table in which ranks publish their addresses, at MASTER_ADDR.

    That of torchrun still has the addresses of processes that were killed, and gloo would connect to them after a restart.
    There rank 0 starts a new table and publishes its port; a port that does not answer is that of an earlier attempt."""
    if "MASTER_ADDR" not in os.environ:  # one process, started by itself
        return distributed.HashStore()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return distributed.TCPStore(host, port, is_master=rank == 0, timeout=JOIN_TIMEOUT)
    shared = distributed.TCPStore(host, port, is_master=False)
    if rank == 0:
        own = distributed.TCPStore(host, 0, is_master=True, timeout=JOIN_TIMEOUT)
        shared.set(PORT, str(own.port))
        return own
    for _ in range(CONNECT_ATTEMPTS):
        published = int(shared.get(PORT))
        try:
            socket.create_connection((host, published), timeout=CONNECT_SECONDS).close()
            return distributed.TCPStore(host, published, is_master=False, timeout=JOIN_TIMEOUT)
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
