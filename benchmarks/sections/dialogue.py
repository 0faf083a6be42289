"""Replies in dialogues."""

from __future__ import annotations

from sections import measured, read, table


def chat() -> str:
    if not measured("chat.json"):
        return ""
    results = read("chat.json")
    turns = list(next(iter(results["models"].values()))["by_turns"])
    head = ["recipe", "parameters", "perplexity", "95% interval", "seeds", *(f"turns: {count}" for count in turns)]
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
        [name, "{:+.4f} ({:+.4f} to {:+.4f})".format(pair["difference"], *pair["interval"]), f"{pair['replies_better']:.1%}"]
        for name, pair in results["paired"].items()
    ]
    at_once = f" {results['jobs']} runs at once." if results.get("jobs", 1) > 1 else ""
    changed = f", with `{' '.join(results['overrides'])}`" if results["overrides"] else ""
    return (
        f"## Replies in dialogues\n\nPerplexity of the {results['replies']:,} replies ({results['tokens']:,} tokens) in the "
        f"{results['split']} data of dialogue-sgd{changed}: the mean over seeds and its interval by Student's t; and by the "
        f"number of turns before the reply, {turns[-1]} at most. Below, two models compared reply by reply: the difference of "
        "their losses in nats per token, its 95% interval by a bootstrap over replies, and the share of replies for which the "
        f"first model has the lower loss. {results['machine']}, torch {results['torch']}, {results['date']}.{at_once}\n"
        f"\n`python benchmarks/chat.py`\n\n{table(head, rows)}\n"
        f"\n{table(['difference', 'nats per token', 'better replies'], pairs)}\n"
    )
