"""The time, memory, communication and cost of a run on many devices, from figures measured on one.

N = nodes x gpus ranks share the global batch of the recipe, which does not depend on N. Per step and rank:

    compute       fixed part of the step of one device + the rest / N; fixed is what does not depend on the size of the batch.
                  If the ranks share D < N devices: (N x fixed + the rest) / D
    DDP           gradients, G bytes: all-to-all and all-gather, 2 (N - 1) / N x G bytes sent
    FSDP          all-gather of the weights, W bytes, in the forward and the backward pass, reduce-scatter of the gradients:
                  (N - 1) / N x (2 W + G) bytes sent
    step          compute + communication; the exchanges of DDP begin when the backward pass has ended, those of FSDP are
                  counted in full although a part of them overlaps with it

Of the bytes that a rank sends, (gpus - 1) / (N - 1) stay inside its node; both links are used at the same time, and the slower
one decides. Every exchange also waits for the latency of N - 1 messages. Weights, gradients and exchanges are fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Strategy = Literal["ddp", "fsdp"]
STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp")
GIGA = 1e9


class Cluster(NamedTuple):
    nodes: int
    gpus: int  # of a node
    node_link: float = 400.0  # GB/s that a GPU sends inside its node: NVLink of an H200 is 450, less its overhead
    network_link: float = 40.0  # GB/s that a GPU sends to other nodes: 400 Gbit/s are 50, less its overhead
    latency: float = 5e-6  # seconds of a message
    price: float = 0.0  # of a GPU for an hour
    devices: int | None = None  # that the ranks share, as processes share the cores of a CPU; default: one for each rank

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus


class Measured(NamedTuple):
    """Figures of one device, as `runs/plan.py` measures them."""

    seconds_per_step: float
    fixed_seconds_per_step: float  # the part of it that does not depend on the size of the batch
    steps: int
    weight_bytes: int
    optimizer_bytes: int
    average_bytes: int  # of the moving average; 0: none
    peak_bytes: int  # of all memory
    base_bytes: int = 0  # of the process besides the model, before the first update: on a CPU, Python and its libraries

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Measured:
        """The figures that `runs.plan.measure` returns."""
        return cls(
            facts["seconds_per_step"],
            facts["fixed_seconds_per_step"],
            facts["steps"],
            facts["weight_bytes"],
            facts["optimizer_bytes"],
            facts["average_bytes"],
            facts["peak_memory_bytes"],
            facts["base_memory_bytes"],
        )

    @property
    def state_bytes(self) -> int:
        """Weights, gradients, optimizer state and moving average."""
        return 2 * self.weight_bytes + self.optimizer_bytes + self.average_bytes

    @property
    def checkpoint_bytes(self) -> int:
        return self.weight_bytes + self.optimizer_bytes + self.average_bytes


def bytes_sent(weights: int, strategy: Strategy, ranks: int) -> float:
    """Per step and rank."""
    exchanged = 2 * weights if strategy == "ddp" else 3 * weights
    return exchanged * (ranks - 1) / ranks


def communication_seconds(weights: int, strategy: Strategy, cluster: Cluster) -> float:
    """Per step."""
    ranks = cluster.ranks
    if ranks == 1:
        return 0.0
    sent = bytes_sent(weights, strategy, ranks)
    inside = sent * (cluster.gpus - 1) / (ranks - 1)
    transfer = max(inside / (cluster.node_link * GIGA), (sent - inside) / (cluster.network_link * GIGA))
    exchanges = 2 if strategy == "ddp" else 3
    return transfer + exchanges * (ranks - 1) * cluster.latency


def memory_bytes(measured: Measured, strategy: Strategy, ranks: int) -> float:
    """Per rank. Activations are what one device used beyond the state and the base, divided by the ranks like the batch."""
    activations = max(0, measured.peak_bytes - measured.base_bytes - measured.state_bytes) / ranks
    if ranks == 1:
        return measured.base_bytes + measured.state_bytes + activations
    if strategy == "ddp":  # gradients to send, and those received
        return measured.base_bytes + measured.state_bytes + 2 * measured.weight_bytes + activations
    # A validation has whole weights and no activations to keep. The weights of one block at a time are not counted.
    return measured.base_bytes + measured.state_bytes / ranks + max(activations, measured.weight_bytes)


class Scaled(NamedTuple):
    """A run on a cluster."""

    strategy: Strategy
    ranks: int
    seconds_per_step: float
    communication_seconds_per_step: float
    efficiency: float  # speedup over one device / ranks
    training_seconds: float
    memory_bytes_per_rank: float
    sent_bytes_per_step_and_rank: float
    checkpoint_bytes: int
    gpu_hours: float
    cost: float


def scale(measured: Measured, cluster: Cluster, strategy: Strategy) -> Scaled:
    ranks = cluster.ranks
    fixed, exchange = measured.fixed_seconds_per_step, communication_seconds(measured.weight_bytes, strategy, cluster)
    devices = ranks if cluster.devices is None else min(cluster.devices, ranks)
    step = (ranks * fixed + measured.seconds_per_step - fixed) / devices + exchange
    seconds = step * measured.steps
    hours = seconds / 3600 * ranks
    return Scaled(
        strategy,
        ranks,
        step,
        exchange,
        measured.seconds_per_step / (ranks * step),
        seconds,
        memory_bytes(measured, strategy, ranks),
        bytes_sent(measured.weight_bytes, strategy, ranks),
        measured.checkpoint_bytes,
        hours,
        hours * cluster.price,
    )


def scale_plan(facts: Mapping[str, Any], cluster: Cluster) -> list[Scaled]:
    """The run on one device, on one node and on the whole cluster, by both strategies. facts: of `runs.plan.measure`."""
    measured = Measured.of(facts)
    sizes = dict.fromkeys([(1, 1), (1, cluster.gpus), (cluster.nodes, cluster.gpus)])
    return [
        scale(measured, cluster._replace(nodes=nodes, gpus=gpus), strategy)
        for nodes, gpus in sizes
        for strategy in (STRATEGIES if nodes * gpus > 1 else STRATEGIES[:1])
    ]
