"""The server under load, and under too much of it."""

from __future__ import annotations

from typing import Any

from sections import measured, read, table


def generation() -> str:
    """Text generation with GPT-2 small, on each measured machine."""
    rows: list[list[str]] = []
    machines = []
    for name, part in (("generate_gpu.json", "gpu"), ("generate_cpu.json", "cpu")):
        if not measured(name):
            continue
        results = read(name)
        machine = results["machine"]
        machines.append(f"{machine['machine']}, torch {machine['torch']}, {machine['date']}")
        for title, found in results[part].items():
            if not isinstance(found, dict):
                continue
            for system, one in found.items():
                if isinstance(one, dict):
                    speed, equal = f"{one['tokens_per_second']:,.0f}", f"{one['tokens_equal_to_ours']:.1%}"
                    limit = f"{found['fraction_of_memory_limit']:.0%}" if system == "heedful" and part == "gpu" else ""
                    rows.append([f"{part}, {title}", system, speed, limit, equal])
    if not rows:
        return ""
    head = ["", "system", "tokens/s", "of the memory limit", "tokens equal to ours"]
    return (
        "## Text generation, GPT-2 small\n\nGreedy, prompts of 16 tokens, random weights; on a GPU 512 new tokens in bf16, "
        "on a CPU 64 in fp32 or int8 with two threads. The memory limit is the time to read the weights and the keys and "
        "values once; with random weights, rounding changes the most probable token. "
        f"{'; '.join(machines)}.\n"
        f"\n`python benchmarks/generate.py --parts gpu --output FILE`\n\n{table(head, rows)}\n"
    )


def load() -> str:
    """One table per measured part."""
    known = {"serve_gpu.json": "Serving on a GPU", "serve_cpu.json": "Serving on two CPU cores"}
    return "\n".join(served(name, title) for name, title in known.items() if measured(name))


def served(name: str, title: str) -> str:
    results = read(name)
    model = results["model"]
    rows = [
        [
            system,
            f"{found['requests_per_second']:,.1f}",
            f"{found['target_tokens_per_second']:,.0f}" if system in results["offline"] else "",
            f"{1000 * found['p50_seconds']:,.0f}",
            f"{1000 * found['p99_seconds']:,.0f}",
            " / ".join(f"{found[kind]:,}" for kind in ("equal", "ties", "different")),
            f"{found['server_cpu']:.2f} + {found['generator_cpu']:.2f}",
        ]
        for system, found in results["systems"].items()
    ]
    head = ["", "requests/s", "target tokens/s", "p50, ms", "p99, ms", "equal / ties / different", "cores (server + clients)"]
    kept = {name: ratio for name, ratio in results["ratios"].items() if is_shown(name)}
    failures = sum(sum(found["errors"].values()) + found["lost"] for found in results["systems"].values())
    mixed_up = sum(found["mixed_up"] for found in results["systems"].values())
    return (
        f"## {title}\n\n{results['clients']} clients at once, {results['seconds']:g} s for each system, one sentence of "
        f"Multi30k test2016 per request over the loopback interface; d{model['dim']}, {model['layers']} + {model['layers']} "
        f"layers, vocabulary {model['vocabulary']:,}, trained for a short time. Every reply is compared with the offline "
        f"translation by the same system: errors or lost: {failures}; translations of another sentence: {mixed_up}. "
        f"The HTTP parser is {results['http_parser']}. "
        f"Ratios: {', '.join(f'{name} {ratio:.2f}' for name, ratio in kept.items())}. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/serve.py --parts {results['part']} --output FILE`\n\n{table(head, rows)}\n"
    )


def is_shown(ratio: str) -> bool:
    """Whether a ratio is shown: that to offline decoding, and those to other ways to serve in the same precision."""
    ours, _, other = ratio.partition(" / ")
    if other == "offline":
        return True
    return not other.startswith("heedful") and "empty handler" not in other and ("int8" in other) == ("int8" in ours)


def soak() -> str:
    if not measured("soak.json"):
        return ""
    results: dict[str, Any] = read("soak.json")
    overload, memory, stopped = results["overload"], results["memory"], results["sigterm"]
    before, after = results["capacity_per_second"], results["capacity_after_per_second"]
    late = overload["later_than_deadline"] + overload["deadline_exceeded_504"]
    others, waiting = sum(overload["other_statuses"].values()), results["idle"]["heedful_queue_depth"]
    answered = (
        f"{overload['answered']:,} ({overload['answered_per_second']:.0f} per second), p99 {overload['p99_seconds']:.1f} s"
    )
    grown = f"{memory['start_mb']:.0f} to {memory['end_mb']:.0f} MB, {memory['slope_mb_per_minute']:+.2f} MB per minute"
    rows = [
        ["capacity before and after", f"{before:.0f} and {after:.0f} requests/s"],
        ["requests sent", f"{overload['sent_per_second']:,.0f} per second"],
        ["answered", answered],
        ["later than the deadline, or 504", f"{late:,}"],
        ["429; without Retry-After", f"{overload['refused_429']:,}; {overload['refused_without_retry_after']:,}"],
        ["other replies, and lost", f"{others:,} and {overload['lost']:,}"],
        ["clients that left", f"{overload['clients_left']:,}; texts in the queue afterwards: {waiting:.0f}"],
        ["memory", grown],
        ["SIGTERM", f"{stopped['answered_after_the_signal']} accepted requests answered, {stopped['accepted_and_lost']} lost"],
    ]
    return (
        f"## The server under ten times its load\n\n{results['minutes']:g} minutes on the loopback interface, deadline "
        f"{overload['deadline_seconds']:g} s. {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/soak.py --minutes {results['minutes']:g} --output FILE`\n\n{table(['', 'measured'], rows)}\n"
    )
