"""Forecasts: the recipes beside the baselines and published figures."""

from __future__ import annotations

from sections import measured, read, table

MODELS = ("ours", "ridge", "DLinear", "seasonal naive", "persistence", "PatchTST/64")


def forecasting() -> str:
    if not measured("forecasting.json"):
        return ""
    found = read("forecasting.json")
    rows = []
    for recipe, one in found["results"].items():
        named = {name.split(" (")[0]: f"{errors['mse']:.4f} / {errors['mae']:.4f}" for name, errors in one["rows"].items()}
        named |= {name: f"{mse:.3f} (published)" for name, mse in one["published"].items()}
        rows.append([recipe, f"{one['windows']:,}", *(named.get(name, "") for name in MODELS)])
    ours = [(one["rows"]["ours"]["mse"], one["rows"]["ridge"]["mse"]) for one in found["results"].values()]
    better = sum(own < ridge for own, ridge in ours)
    return (
        "## Forecasting\n\nMean squared and mean absolute error of standardized values, over all variables and all windows of "
        "test. Ours is a ridge map of the window, and an encoder of patches that is trained on what the map leaves; "
        f"checkpoints are selected on valid. Below ridge alone in {better} of {len(ours)} cases: linear forecasts are hard to "
        "improve on this data. One seed, one core. "
        f"{found['machine']['machine']}, torch {found['machine']['torch']}, {found['date']}.\n"
        f"\n`python benchmarks/forecasting.py`\n\n{table(['recipe', 'windows', *MODELS], rows)}\n"
    )
