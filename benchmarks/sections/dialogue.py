"""Replies in dialogues: generated, retrieved, and searched for in an index."""

from __future__ import annotations

from typing import Any

from sections import measured, read, table


def chat() -> str:
    if not measured("chat.json"):
        return ""
    results = read("chat.json")
    turns = list(next(iter(results["models"].values()))["by_turns"])
    head = ["recipe", "parameters", "perplexity", "95% interval", "seeds", *(f"after {count} turns" for count in turns)]
    rows = [
        [
            f"`{name}`",
            f"{model['parameters']:,}",
            f"{model['perplexity']:.2f}",
            "{:.2f} to {:.2f}".format(*model["interval"]) if len(model["seeds"]) > 1 else "",
            ", ".join(f"{seed:.2f}" for seed in model["seeds"]),
            *(f"{model['by_turns'][count]:.2f}" for count in turns),
        ]
        for name, model in results["models"].items()
    ]
    pairs = [
        [name, with_interval(pair["difference"], *pair["interval"]), f"{pair['replies_better']:.1%}"]
        for name, pair in results["paired"].items()
    ]
    changed = f", with `{' '.join(results['overrides'])}`" if results["overrides"] else ""
    return (
        f"## Replies in dialogues\n\nPerplexity of the {results['replies']:,} replies ({results['tokens']:,} tokens) in the "
        f"{results['split']} data of dialogue-sgd{changed}: the mean over seeds and its interval by Student's t; and by the "
        "number of turns before the reply, five at most. Below, two models compared reply by reply: the difference of their "
        "losses in nats per token, its 95% interval by a bootstrap over replies, and the share of replies for which the first "
        f"model has the lower loss. {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/chat.py`\n\n{table(head, rows)}\n"
        f"\n{table(['difference', 'nats per token', 'better replies'], pairs)}\n"
    )


def with_interval(value: float, low: float, high: float) -> str:
    return f"{value:+.4f} ({low:+.4f} to {high:+.4f})"


METRICS = {"recall_1": "recall@1", "recall_10": "recall@10", "mrr": "MRR"}
RETRIEVERS = ("single-turn", "multi-turn")
DIFFERENCE = "multi-turn - single-turn"


def retrieval() -> str:
    if not measured("retrieval.json"):
        return ""
    results = read("retrieval.json")
    first = results[RETRIEVERS[0]]
    rows = [row for name in RETRIEVERS for row in retrieval_rows(name, results[name])]
    rows.append([DIFFERENCE, "", "", *(with_interval(*results[DIFFERENCE][metric]) for metric in METRICS)])
    return (
        f"## Retrieval of replies\n\nThe {first['examples']:,} system turns in the {first['split']} data of Schema-Guided "
        f"Dialogue, each ranked among {first['candidates']} distinct system turns, the same for all systems: dual encoders "
        "that read one turn or several, and BM25, whose settings and number of turns were selected on the validation data. In "
        "brackets 95% intervals by a bootstrap over replies; differences are paired. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/retrieval.py`\n\n{table(['system', 'recipe', 'seconds', *METRICS.values()], rows)}\n"
    )


def retrieval_rows(name: str, result: dict[str, Any]) -> list[list[str]]:
    """The dual encoder, BM25, and their difference."""
    seconds = f"{result['train_seconds']:,}" if "train_seconds" in result else ""
    other = result["bm25"]
    differences = [with_interval(*other["difference"][metric]) for metric in METRICS]
    return [
        [name, f"`{result['recipe']}`", seconds, *figures(result)],
        [f"BM25, {name}", "", "", *figures(other)],
        [f"{name} - BM25", "", "", *differences],
    ]


def figures(of: dict[str, Any]) -> list[str]:
    return ["{:.3f} ({:.3f} to {:.3f})".format(of["figures"][metric], *of["intervals"][metric]) for metric in METRICS]


def retrieval_index() -> str:
    if not measured("retrieval_index.json"):
        return ""
    results = read("retrieval_index.json")
    return (
        f"## Exact search among stored replies\n\n{results['entries']:,} random vectors of size {results['dim']}, searched "
        f"without approximation: a query takes {results['single']['milliseconds']:.1f} ms, or "
        f"{results['batch_of_64']['milliseconds_per_query']:.2f} ms in a batch of 64 (medians). The results "
        f"{'equal' if results['exact'] else 'DIFFER from'} those of a sort of all scores in double precision. The index takes "
        f"{results['index_mb']:,} MB on disk, is opened in {results['open_seconds']:.2f} s and mapped into memory: "
        f"{results['resident_mb_after']:,} MB resident after searching, {results['resident_mb_before']:,} MB before. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        "\n`python benchmarks/retrieval_index.py`\n"
    )
