"""Exact search among a million stored replies: time of a query, memory, and agreement with a sort of all scores.

    python benchmarks/retrieval_index.py                       benchmarks/results/retrieval_index.json, about two minutes

Random vectors of length 1 are written as the index of a knowledge base, and opened as `heed search` opens it. Queries are
random vectors, one at a time and 64 at a time; each is compared with all stored vectors. Memory is measured in a fresh process
that opens the index and searches: the file is mapped, so its pages count as resident after the first search, and the system can
drop them at any time. Exact: the numbers and their order equal those of a sort of all scores, computed in double precision.

With faiss, the same entries are also indexed for approximate search, and its recall of the ten best is measured, too. Random
vectors have no neighborhoods, which is the worst case for it; so it is measured with vectors that vary in 16 directions only,
mixed into all dimensions (`--latent`), and with random ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers.machine import machine_info

from heedful.storage.manifest import NAME as MANIFEST
from heedful.tasks.retrieval.knowledge import Encoders, Entry, KnowledgeBase, open_knowledge, write_index, write_replies
from heedful.vectors.approximate import ApproximateSearch, build_lists
from heedful.vectors.nearest import nearest_vectors

RESULTS = Path(__file__).parent / "results" / "retrieval_index.json"
TOP = 5
APPROXIMATE_QUERIES = 50


def unit_vectors(count: int, dim: int, seed: int, latent: int = 0) -> torch.Tensor:
    """Random vectors of length 1; latent: they vary in this many directions; 0: in all."""
    numbers = torch.randn(count, latent or dim, generator=torch.Generator().manual_seed(seed))
    if latent:
        numbers = numbers @ torch.randn(latent, dim, generator=torch.Generator().manual_seed(2**31))
    return torch.nn.functional.normalize(numbers, dim=-1)


def write_knowledge(folder: Path, entries: int, dim: int, latent: int = 0) -> None:
    """A knowledge base of answers without questions, and the checkpoint that it belongs to."""
    checkpoint = folder / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / MANIFEST).write_text("{}")
    write_replies(folder / "knowledge", (Entry((), f"This is the stored reply number {number}.") for number in range(entries)))
    seeds = iter(range(10**9))
    encoders = Encoders(
        lambda questions: torch.zeros(len(questions), dim), lambda answers: unit_vectors(len(answers), dim, next(seeds), latent)
    )
    write_index(folder / "knowledge", checkpoint, encoders)


def measure_approximate(folder: Path, dim: int, latent: int) -> dict[str, Any]:
    """The figures of approximate search among the entries of an index."""
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    vectors = open_index(folder, dim).tables["answers"].vectors
    started = time.perf_counter()
    stored = build_lists(vectors)
    built, before = time.perf_counter() - started, resident()
    lists = ApproximateSearch(stored, vectors)
    seconds, hits = [], 0
    for seed in range(APPROXIMATE_QUERIES):
        query = unit_vectors(1, dim, 10**6 + seed, latent)
        started = time.perf_counter()
        _, found = lists.nearest(query, 10)
        seconds.append(time.perf_counter() - started)
        hits += len({*found[0].tolist()} & {*nearest_vectors(vectors, query, 10)[1][0].tolist()})
    return {
        "recall_at_10": round(hits / (10 * APPROXIMATE_QUERIES), 4),
        "milliseconds": round(1000 * statistics.median(seconds), 2),
        "build_seconds": round(built, 1),
        "lists_mb": round(len(stored) / 1e6),
        "resident_mb_of_lists": round((resident() - before) / 1e6),
    }


def open_index(folder: Path, dim: int) -> KnowledgeBase:
    return open_knowledge(folder / "knowledge", folder / "checkpoints" / "step-1", dim)


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(base: KnowledgeBase, dim: int, rows: int, repeats: int) -> dict[str, float]:
    seconds = []
    for seed in range(repeats):
        queries = unit_vectors(rows, dim, 10**6 + seed)
        started = time.perf_counter()
        base.search(queries, "answers", TOP)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    return {"milliseconds": round(1000 * median, 1), "milliseconds_per_query": round(1000 * median / rows, 2)}


def agrees(base: KnowledgeBase, dim: int, rows: int = 16) -> bool:
    """Whether the entries found equal those of a sort of all scores in double precision."""
    queries = unit_vectors(rows, dim, 7)
    found = base.search(queries, "answers", TOP)
    vectors = base.tables["answers"].vectors.numpy()
    for query, answers in zip(queries.double().numpy(), found, strict=True):
        scores = np.concatenate([part.astype(np.float64) @ query for part in np.array_split(vectors, 16)])
        order = np.argsort(-scores, kind="stable")[:TOP]
        if base.tables["answers"].entries[order].tolist() != [answer.entry for answer in answers]:
            return False
    return True


def child(folder: Path, dim: int) -> dict[str, Any]:
    """The figures of a fresh process."""
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    before = resident()
    started = time.perf_counter()
    base = open_index(folder, dim)
    opened = time.perf_counter() - started
    base.search(unit_vectors(1, dim, 0), "answers", TOP)  # reads the file once
    single, batch = measure(base, dim, 1, 11), measure(base, dim, 64, 5)
    return {
        "open_seconds": round(opened, 2),
        "single": single,
        "batch_of_64": batch,
        "resident_mb_before": round(before / 1e6),
        "resident_mb_after": round(resident() / 1e6),
        "exact": agrees(base, dim),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--folder", type=Path, help="folder of the index; default: a temporary one")
    parser.add_argument("--latent", type=int, default=16, help="directions in which the vectors of approximate search vary")
    parser.add_argument("--only-approximate", action="store_true", help="add the figures of approximate search to the results")
    parser.add_argument("--child", choices=("exact", "approximate"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if args.child:
        of = child(args.folder, args.dim) if args.child == "exact" else measure_approximate(args.folder, args.dim, args.latent)
        print(json.dumps(of))
        return 0
    results: dict[str, Any] = json.loads(args.output.read_text()) if args.only_approximate else {}
    if not args.only_approximate:
        results = exact_figures(args)
    if importlib.util.find_spec("faiss") is not None:
        results["approximate"] = {
            name: run_child(args, "approximate", latent) | {"load_average_after": round(os.getloadavg()[0], 1)}
            for name, latent in ((f"{args.latent} directions", args.latent), ("random", 0))
        }
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    return 0


def run_child(args: argparse.Namespace, kind: str, latent: int, about: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write an index, and measure it in a fresh process; about: receives what is measured while it is written."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        started = time.perf_counter()
        write_knowledge(folder, args.entries, args.dim, latent)
        written = time.perf_counter() - started
        sizes = {path.name: path.stat().st_size for path in sorted((folder / "knowledge" / "index").iterdir())}
        if about is not None:
            about["write_seconds_without_encoding"] = round(written, 1)
            about["index_mb"] = round(sum(sizes.values()) / 1e6)
            about["vectors_mb"] = round(sizes["answers.vectors"] / 1e6)
            about["load_average_before"] = round(os.getloadavg()[0], 1)
        options = ["--folder", str(folder), "--dim", str(args.dim), "--latent", str(latent)]
        command = [sys.executable, __file__, "--child", kind, *options]
        figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def exact_figures(args: argparse.Namespace) -> dict[str, Any]:
    about: dict[str, Any] = {}
    figures = run_child(args, "exact", 0, about)
    return {"entries": args.entries, "dim": args.dim, **figures, **about, **machine_info()}


if __name__ == "__main__":
    sys.exit(main())
