"""Limits of a server: sizes of requests, of the queue and of batches, and times. Every one is an option of `heed serve`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    max_texts: int = 50  # of a request
    max_characters: int = 5_000  # of a text
    max_data: int = 100_000  # characters of an input that is no text: an image, a table, a graph or a history
    max_body: int = 2**18  # bytes of a request
    max_tokens: int = 2_048  # to generate for a text
    max_candidates: int = 16  # of a text: beam, alternatives, samples
    max_queue: int = 1_000  # texts that wait for one model; a single client may fill half of it
    max_running: int | None = None  # texts that are decoded at the same time; None: 64 on a CPU, 256 on a GPU
    max_batch_tokens: int = 2_048  # of the inputs that are computed together, by tasks without search
    max_wait_ms: float = 5.0  # that an input waits for others to form a batch
    deadline: float = 30.0  # seconds from the arrival of a request to its reply
    grace: float = 35.0  # seconds to finish requests after SIGTERM
    body_timeout: float = 10.0  # seconds to receive the body of a request
    analysis_deadline: float = 300.0  # seconds for an analysis
    max_connections: int = 1_024
