"""The model card: a run folder's README.md, written from the run and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from heedful.config import Run
from heedful.training import retention, run_folder
from heedful.training.saved_state import load_saved
from heedful.training.train_state import TrainState


class Trained(Protocol):
    """What a card is written from besides the folder."""

    model: nn.Module
    task: Any
    train_state: TrainState


def model_card(config: Run, folder: Path, trainer: Trained) -> str:
    facts = run_folder.read_facts(folder)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    best = retention.resolve(folder)
    saved = load_saved(best)
    signatures = {name: f"`{signature}`".replace("|", "\\|") for name, signature in saved.signatures.items()}
    figures = "\n".join(f"| {name} | {value:.4g} | {signatures.get(name, '')} |" for name, value in saved.metrics.items())
    data = "\n".join(f"| {name} | `{digest}` |" for name, digest in facts["data"].items())
    versions = ", ".join(f"{name} {version}" for name, version in facts["environment"].items())
    usage, limits = trainer.task.advice(str(folder))
    return f"""# {folder.name}

A {config.model.family} for {config.task.name}: {parameters:,} parameters, {config.tokenizer.kind} tokenizer, trained for
{trainer.train_state.step:,} steps on {trainer.train_state.tokens:,} {config.task.unit}. `config.toml` holds every option.

```python
import heedful

{usage}
```

## Validation

Of `{best.name}`, which is used unless another checkpoint is named.

| figure | value | signature |
|---|---|---|
{figures}

## Data

| file | SHA-256 |
|---|---|
{data or "| built-in corpus | made by the grammar of this package |"}

Made with {versions}.

## Limits

The model knows what its training text knows, with its errors and leanings. {limits}
Judge it on text of your own before relying on it.
{history(facts["pruned"]) if "pruned" in facts else ""}"""


def history(origin: Mapping[str, Any]) -> str:
    """What pruning took away."""
    rows = [
        f"| {kind} | {sum(layers)} | {sum(origin['left'][kind])} | {', '.join(map(str, origin['left'][kind]))} |"
        for kind, layers in origin["heads"].items()
    ]
    table = "\n".join(["| heads | before | left | in each layer |", "|---|---|---|---|", *rows])
    return (
        f"\n## Heads taken out\n\nFrom `{origin['checkpoint']}` of `{origin['run']}`. Training goes on with a new state of "
        f"the optimizer.\n\n{table}\n"
    )
