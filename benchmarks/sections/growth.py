"""Scaling and resuming."""

from __future__ import annotations

from scaling_rows import lengths_table, lengths_text

from sections import ROOT, measured, read, table

MACHINES = {"cpu": "One CPU thread", "cuda": "NVIDIA H200, bf16, eager steps without CUDA graphs"}


def scaling() -> str:
    texts = [scaling_on(device) for device in MACHINES if measured(f"scaling_{device}.json")]
    return "## Cost as work grows\n\nThe layers are those of docs/concepts/sequence-layers.md.\n\n" + "\n".join(texts)


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
        f"## Killed and resumed\n\n{results['kills']} times SIGKILL at random moments of runs of {results['steps']} steps, "
        "each time the same command again: weights, optimizer, running average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of a run that was never stopped ({results['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )
