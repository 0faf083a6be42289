"""Retrieval of stored replies: quality beside BM25, and the time of exact search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headers import with_header

from heedful.runs.recipes import all_recipes, settings_digest
from sections import measured, read, table

METRICS = {"recall_1": "recall@1", "recall_10": "recall@10", "mrr": "MRR"}


def with_interval(value: float, bounds: list[float]) -> str:
    return f"{value:.3f} ({bounds[0]:.3f} to {bounds[1]:.3f})"


def row(name: str, found: dict[str, Any], first: str) -> list[str]:
    return [name, first, *(with_interval(found["figures"][metric], found["intervals"][metric]) for metric in METRICS)]


def retrieval() -> str:
    if not measured("retrieval.json"):
        return ""
    results, rows = read("retrieval.json"), []
    runs = {name: results[name] for name in ("single-turn", "multi-turn")}
    for name, run in runs.items():
        setting = run["bm25"]["setting"]
        turns = f"the last {setting['turns']}" if setting["turns"] else f"up to {run['turns']}"
        rows.append(row(f"dual encoder, {name}", run, f"up to {run['turns']}"))
        rows.append(row(f"BM25, k1 {setting['k1']:g}, b {setting['b']:g}", run["bm25"], turns))
    value, low, high = results["multi-turn - single-turn"]["recall_1"]
    gains = ", ".join(f"{run['bm25']['difference']['recall_1'][0]:+.3f} {name}" for name, run in runs.items())
    seconds = " and ".join(f"{run['cpu_seconds']}" for run in runs.values())
    first = runs["single-turn"]
    return (
        f"## Retrieval\n\nSchema-Guided Dialogue, {first['examples']:,} system turns of {first['split']}, each ranked among "
        f"{first['candidates'] - 1} other distinct system turns drawn with a fixed seed; 95% intervals. "
        f"Recall@1 over BM25: {gains}; multi-turn over single-turn {value:+.3f} ({low:+.3f} to {high:+.3f}). "
        f"Training took {seconds} seconds of CPU time, {first['parameters'] / 1e6:.1f} million parameters. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/retrieval.py`\n\n{table(['', 'turns', *METRICS.values()], rows)}\n"
    )


def index() -> str:
    if not measured("retrieval_index.json"):
        return ""
    found = read("retrieval_index.json")
    rows = [
        ["one question", f"{found['single']['milliseconds']:g} ms"],
        ["64 questions together, each", f"{found['batch_of_64']['milliseconds_per_query']:g} ms"],
        ["opening, with the check of all hashes", f"{found['open_seconds']:g} s"],
        ["index on disk", f"{found['index_mb']} MB, {found['vectors_mb']} MB of them vectors"],
        ["resident memory before and after", f"{found['resident_mb_before']} MB, {found['resident_mb_after']} MB"],
        ["equal to a sort of all scores", "yes" if found["exact"] else "no"],
    ]
    rows += [
        [
            f"approximate, vectors: {name}",
            f"recall@10 {one['recall_at_10']:.1%}, {one['milliseconds']:g} ms for one question, {one['lists_mb']} MB of lists "
            f"built in {one['build_seconds']:g} s (load average {one['load_average_after']:g})",
        ]
        for name, one in found.get("approximate", {}).items()
    ]
    return (
        f"## Search among {found['entries']:,} stored replies\n\nExact search of vectors of size {found['dim']} in a "
        f"memory-mapped file, two threads; load average before the measurement {found['load_average_before']:g}. "
        f"{found['machine']}, torch {found['torch']}, {found['date']}.\n"
        f"\n`python benchmarks/retrieval_index.py`\n\n{table(['', ''], rows)}\n"
    )


def update_retrieval_recipes() -> Iterator[str]:
    """Write the measured header of each recipe whose settings are those of its result; yield messages."""
    results = read("retrieval.json") if measured("retrieval.json") else {}
    for name in ("single-turn", "multi-turn") if results else ():
        run, path = results[name], all_recipes()[results[name]["recipe"]]
        fits = run["settings"] == settings_digest(path)
        model, words = (
            ", ".join(f"{one[metric]:.3f}" for metric in METRICS) for one in (run["figures"], run["bm25"]["figures"])
        )
        lines = {
            "result": f"recall@1, recall@10 and MRR of {run['candidates']} candidates {model}, one seed; BM25 {words}",
            "machine": f"{results['machine']}, {run['threads']} thread{'s' * (run['threads'] > 1)}, shared",
            "minutes": f"{run['cpu_seconds'] / 60:.1f} of CPU time",
            "date": results["date"],
        }
        path.write_text(with_header(path.read_text(encoding="utf-8"), lines if fits else {}), encoding="utf-8")
        yield f"{run['recipe']}: {'measured' if fits else 'its result is of other settings'}"
