"""Scaling, resuming after a kill, busy machines and time limits."""

from __future__ import annotations

from scaling_rows import lengths_table, lengths_text

from sections import ROOT, measured, read, table

PLACES = {"cpu": "One CPU thread", "cuda": "NVIDIA H200, bf16, steps without compilation or CUDA graphs"}


def scaling() -> str:
    parts = [scaling_on(device) for device in PLACES if measured(f"scaling_{device}.json")]
    return "## Scaling\n\ndocs/concepts/sequence-layers.md describes the layers.\n\n" + "\n".join(parts)


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
        f"## Resuming after a kill\n\nRuns of {found['steps']} steps were killed (SIGKILL) {found['kills']} times at random "
        "and resumed with the same command: weights, optimizer state, moving average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of an uninterrupted run ({found['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )


def busy() -> str:
    found = read("busy.json")
    work = {"train": f"{found['steps']} steps of the demo", "translate": f"translation of {found['sentences']:,} sentences"}
    rows = [
        [
            name,
            f"{found[part]['spin-300000']['alone']:.1f} s",
            f"{found[part]['default']['alone']:.1f} s",
            f"{found[part]['default']['side_by_side']:.1f} s ({found[part]['default']['ratio']:.1f} x)",
        ]
        for part, name in work.items()
    ]
    head = ["work", "libgomp's default, alone", "heedful, alone", "heedful, three at once"]
    return (
        "## Several commands on one machine\n\nWall time of whole commands, medians "
        f"({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        "\n`python benchmarks/busy.py --repeats 3 --settings spin-300000,default --alone spin-300000`\n"
        f"\n{table(head, rows)}\n"
    )


def time_limit() -> str:
    found = read("minutes.json")
    return (
        f"## Time limits\n\n`small` on {found['pairs']:,} pairs of tatoeba-pt-en with `training.minutes={found['minutes']:g}`, "
        f"two cores of an Intel Xeon: {found['seconds']:.1f} s including start-up, vocabulary and final validation; "
        f"{found['steps']} updates, the highest learning rate at update {found['highest_rate_at_step']} (warm-up shortened "
        f"from {found['configured_warmup']}), BLEU {found['best_bleu']:.1f} ({found['date']}).\n"
        "\n`python benchmarks/minutes.py`\n"
    )
