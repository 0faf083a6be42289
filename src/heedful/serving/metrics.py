"""Metrics in the format of Prometheus. Labels have few values: never a text, a key or an address."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = tuple(2**power for power in range(3, 17))
SHARES = tuple(tenth / 10 for tenth in range(11))


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own = {"registry": self.registry}
        self.requests = Counter("heedful_requests", "Requests answered.", ["api", "route", "code"], **own)
        self.request_seconds = Histogram("heedful_request_seconds", "Time to answer.", ["api"], buckets=SECONDS, **own)
        self.queue_seconds = Histogram("heedful_queue_seconds", "Time in the queue.", buckets=SECONDS, **own)
        self.first_token_seconds = Histogram(
            "heedful_time_to_first_token_seconds", "Time to the first output.", buckets=SECONDS, **own
        )
        self.batch_tokens = Histogram("heedful_batch_tokens", "Input tokens of a batch.", buckets=TOKENS, **own)
        self.padding = Histogram("heedful_padding_ratio", "Padding in a batch.", buckets=SHARES, **own)
        self.queue_depth = Gauge("heedful_queue_depth", "Texts that wait.", **own)
        self.tokens = Counter("heedful_tokens", "Tokens of inputs and outputs.", ["dir"], **own)
        self.rejected = Counter("heedful_rejected", "Requests refused.", ["reason"], **own)
        self.models = Info("heedful_model", "Models served.", ["model"], **own)

    def text(self) -> bytes:
        return generate_latest(self.registry)
