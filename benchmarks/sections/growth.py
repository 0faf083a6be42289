"""Scaling and resuming."""

from __future__ import annotations

from scaling_rows import lengths_table, lengths_text

from sections import ROOT, measured, read, table

MACHINES = {"cpu": "One CPU thread", "cuda": "NVIDIA H200, bf16, steps without compilation or CUDA graphs"}


def scaling() -> str:
    texts = [scaling_on(device) for device in MACHINES if measured(f"scaling_{device}.json")]
    return "## Scaling\n\ndocs/concepts/sequence-layers.md describes the layers.\n\n" + "\n".join(texts)


def scaling_on(device: str) -> str:
    results, folder = read(f"scaling_{device}.json"), "pictures" if device == "cpu" else f"pictures/{device}"
    pictures = "\n".join(
        f"![{name}]({folder}/scaling-{name}.png)"
        for name in ("length", "size", "batch", "families", "data")
        if (ROOT / "docs" / folder / f"scaling-{name}.png").exists()
    )
    dates = " and ".join(sorted({part["date"] for part in results.values()}))
    growing = results.get("families")
    return (
        f"{MACHINES[device]}, torch {results['length']['torch']}, {dates}.\n\n`python benchmarks/scaling.py`\n\n{pictures}\n"
        + (f"\n{lengths_text(growing)}\n\n{table(*lengths_table(growing))}\n" if growing else "")
    )


def survival() -> str:
    results = read("kill.json")
    same = all(results["identical"].values())
    return (
        f"## Resuming after a kill\n\nRuns of {results['steps']} steps were killed (SIGKILL) {results['kills']} times at "
        "random and resumed with the same command: weights, optimizer state, moving average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of an uninterrupted run ({results['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )
