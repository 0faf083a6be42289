"""Faults, planted defects, and texts."""

from __future__ import annotations

from collections import Counter

from sections import measured, read, table


def faults() -> str:
    if not measured("faults.json"):
        return ""
    results = read("faults.json")
    counts = results["counts"]
    wrong = [[case["case"], case["expected"], case["seen"]] for case in results["cases"] if case["verdict"] == "WRONG"]
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return (
        f"## Faults\n\n{len(results['cases'])} cases of whole commands: full and unreadable disks, signals, closed streams, "
        "pipes, damaged or hostile files. Each has an expected exit code and outcome, such as a one-sentence message and an "
        f"unchanged run. As expected: {counts['right']}; otherwise: {counts['WRONG']}{skipped} "
        f"(Python {results['python']}, {results['date']}).\n"
        "\n`python benchmarks/faults.py`\n" + (f"\n{table(['case', 'expected', 'outcome'], wrong)}\n" if wrong else "")
    )


def planted() -> str:
    if not measured("planted.json"):
        return ""
    results = read("planted.json")
    return (
        f"## Planted defects\n\n{results['defects']} defects that were once fixed are put back into a copy of the code, one at "
        f"a time. Of the {results['tests']} tests written for them, {results['shown']} fail with the defect and pass without "
        f"it ({results['machine']}, {results['date']}).\n\n`python benchmarks/planted.py`\n"
    )


KINDS = {"help": "help texts", "messages": "messages", "docstrings": "docstrings"}


def texts() -> str:
    if not measured("texts.json"):
        return ""
    results = read("texts.json")
    every, understood = (
        Counter(text["kind"] for text in results["texts"] if text["understood_at_first_reading"] or not only)
        for only in (False, True)
    )
    rows = [[name, f"{understood[kind]} of {every[kind]}"] for kind, name in KINDS.items()]
    return (
        f"## Readability of texts\n\n{every.total()} help texts, messages and docstrings, drawn at random, were read by a "
        "reader who knew PyTorch and Hugging Face but not this project; those not understood at first reading were rewritten "
        f"({results['date']}; all of them in benchmarks/results/texts.json).\n"
        f"\n{table(['texts', 'understood at first reading'], rows)}\n"
    )
