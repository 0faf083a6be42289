"""Forecasts: the recipes beside the baselines and published figures."""

from __future__ import annotations

from sections import measured, read, table

MODELS = ("ours", "ridge", "DLinear", "seasonal naive", "persistence", "PatchTST/64", "DLinear, published")


def forecasting() -> str:
    if not measured("forecasting.json"):
        return ""
    found = read("forecasting.json")
    rows = []
    for recipe, one in found["results"].items():
        named = {name.split(" (")[0]: f"{errors['mse']:.4f} / {errors['mae']:.4f}" for name, errors in one["rows"].items()}
        named |= {name: f"{mse:.3f}" for name, mse in one["published"].items()}
        rows.append([recipe, f"{one['windows']:,}", *(named.get(name, "") for name in MODELS)])
    ours = [(one["rows"]["ours"]["mse"], one["rows"]["ridge"]["mse"]) for one in found["results"].values()]
    better, most = sum(own < ridge for own, ridge in ours), max(own / ridge - 1 for own, ridge in ours)
    return (
        "## Forecasting\n\nMean squared and mean absolute error of standardized values, over all variables and all windows of "
        "test; of published figures the squared error. On ETTh1, ours is a ridge map of the window and an encoder of patches "
        "that is trained on what the map leaves, on exchange rates an encoder that starts from persistence; checkpoints, "
        f"penalties and look-back are selected on valid. Below ridge alone in {better} of {len(ours)} cases and at most "
        f"{most:.1%} above it: linear forecasts are hard to improve on this data. One seed, one core. "
        f"{found['machine']['machine']}, torch {found['machine']['torch']}, {found['date']}.\n"
        f"\n`python benchmarks/forecasting.py`\n\n{table(['recipe', 'windows', *MODELS], rows)}\n{choice(found)}"
    )


def choice(found: dict[str, object]) -> str:
    """The learning rate that was selected by rolling origins."""
    chosen = found.get("choice")
    if not isinstance(chosen, dict):
        return ""
    shares = "; ".join(
        f"{rate}: {', '.join(f'{share:.3f}' for share in several)}" for rate, several in chosen["shares"].items()
    )
    return (
        f"\nThe learning rate of `{chosen['recipe']}` is the best of three rolling origins within its training rows; squared "
        f"error on the rows after valid, as a share of persistence: {shares} (`python benchmarks/forecasting.py --choose`).\n"
    )
