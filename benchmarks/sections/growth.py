"""What grows, and what survives."""

from __future__ import annotations

from scaling_rows import lengths_table, lengths_text

from sections import ROOT, measured, read, table

PLACES = {"cpu": "One CPU thread", "cuda": "NVIDIA H200, bf16, steps that are neither compiled nor captured"}


def scaling() -> str:
    told = [scaling_on(device) for device in PLACES if measured(f"scaling_{device}.json")]
    return "## Cost as work grows\n\nThe layers are those of docs/concepts/sequence-layers.md.\n\n" + "\n".join(told)


def scaling_on(device: str) -> str:
    found, folder = read(f"scaling_{device}.json"), "pictures" if device == "cpu" else f"pictures/{device}"
    pictures = "\n".join(
        f"![{name}]({folder}/scaling-{name}.png)"
        for name in ("length", "size", "batch", "families", "data")
        if (ROOT / "docs" / folder / f"scaling-{name}.png").exists()
    )
    dates = " and ".join(sorted({part["date"] for part in found.values()}))
    growing = found.get("families")
    return f"{PLACES[device]}, torch {found['length']['torch']}, {dates}.\n\n`python benchmarks/scaling.py`\n\n{pictures}\n" + (
        f"\n{lengths_text(growing)}\n\n{table(*lengths_table(growing))}\n" if growing else ""
    )


def survival() -> str:
    found = read("kill.json")
    same = all(found["identical"].values())
    return (
        f"## Killed and continued\n\n{found['kills']} times SIGKILL at random moments of runs of {found['steps']} steps, each "
        "time the same command again: weights, optimizer, running average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of a run that was never stopped ({found['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )
