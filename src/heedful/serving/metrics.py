"""Metrics in the format of Prometheus. Labels have few values: never a text, a key or an address."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = tuple(2**power for power in range(3, 17))
SHARES = tuple(tenth / 10 for tenth in range(11))


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = self.counter("requests", "Requests answered.", "api", "route", "code")
        self.request_seconds = self.histogram("request_seconds", "Time to answer.", SECONDS, "api")
        self.queue_seconds = self.histogram("queue_seconds", "Time in the queue.", SECONDS)
        self.first_token_seconds = self.histogram("time_to_first_token_seconds", "Time to the first output.", SECONDS)
        self.batch_tokens = self.histogram("batch_tokens", "Input tokens of a batch.", TOKENS)
        self.padding = self.histogram("padding_ratio", "Padding in a batch.", SHARES)
        self.queue_depth = Gauge("heedful_queue_depth", "Texts that wait.", registry=self.registry)
        self.running = Gauge("heedful_running", "Texts that are being decoded.", registry=self.registry)
        self.tokens = self.counter("tokens", "Tokens of inputs and outputs.", "dir")
        self.rejected = self.counter("rejected", "Requests refused.", "reason")
        self.models = Info("heedful_model", "Models served.", ["model"], registry=self.registry)

    def counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"heedful_{name}", about, labels, registry=self.registry)

    def histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"heedful_{name}", about, labels, buckets=buckets, registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
