"""A claim about decisions: a desired return decides what a sequence model of recorded episodes reaches (Chen et al., 2021).

The data is that of a behavior policy of mixed quality in a generated grid world. The same model without desired returns clones
that behavior. Which desired return is the best is chosen on the starts of the validation data, and all figures are of those of
the test data. Actions are drawn by their probability, in both models.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from rich.console import Console

import heedful
from claims import SEEDS, Evidence
from heedful.evaluation.returns import mean_interval

RECIPE = "toy-gridworld"
EPISODES = 500  # for each desired return


def train(folder: Path, seed: int, condition: str) -> heedful.DecisionMaker:
    run, options = folder / f"{condition}-{seed}", ["training.threads=1", f"seed={seed}", f"task.condition={condition}"]
    heedful.train(RECIPE, options, run=run, device="cpu", console=Console(quiet=True))
    return heedful.DecisionMaker.load(run)


def desired_returns(folder: Path) -> Evidence:
    """For each seed, neighboring desired returns may be out of order only within their intervals."""
    figures: dict[str, str] = {}
    held = []
    for seed in SEEDS:
        maker, clone = (train(folder, seed, condition) for condition in ("return", "none"))
        valid = maker.compare(episodes=EPISODES, split="valid")
        best = max(valid.rows, key=lambda row: row.interval.mean).desired
        test = maker.compare(episodes=EPISODES, against=clone)
        (chosen,) = (row for row in test.rows if row.desired == best)
        assert chosen.against is not None and test.correlation is not None, "both models were rolled out"
        reached, cloned = chosen.interval, mean_interval(chosen.against)
        greedy = maker.compare([best or 0.0], EPISODES, greedy=True, against=clone).rows[0]
        grows = all(before.interval.low <= after.interval.high for before, after in pairwise(test.rows))
        held.append(len(test.rows) >= 4 and grows and test.correlation >= 0.9 and reached.low > cloned.high)
        curve = ", ".join(f"{row.desired:g}: {row.interval.mean:.2f}" for row in test.rows)
        figures[f"seed {seed}: reached by desired return"] = f"{curve}; rank correlation {test.correlation:.2f}"
        figures[f"seed {seed}: at {best:g}, and behavior cloning"] = f"{reached.text()}, {cloned.text()}"
        both = mean_interval(greedy.returns).text(), mean_interval(greedy.against or [0.0]).text()
        figures[f"seed {seed}: the same with the most probable actions"] = ", ".join(both)
        figures["highest possible, mean of the data"] = f"{test.optimal:.2f}, {test.data_mean:.2f}"
    return Evidence(figures, all(held))
