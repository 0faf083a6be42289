"""The model card: a run folder's README.md, written from the run and nothing else."""

from __future__ import annotations

from pathlib import Path

from heedful.config import Run
from heedful.training import retention, run_folder
from heedful.training.checkpoint import load_state
from heedful.training.loop import Trainer


def model_card(config: Run, folder: Path, trainer: Trainer) -> str:
    facts = run_folder.read_facts(folder)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    best = retention.resolve(folder)
    state = load_state(best)
    signatures = {name: f"`{signature}`".replace("|", "\\|") for name, signature in state["signatures"].items()}
    figures = "\n".join(f"| {name} | {value:.4g} | {signatures.get(name, '')} |" for name, value in state["metrics"].items())
    data = "\n".join(f"| {name} | `{digest}` |" for name, digest in facts["data"].items())
    versions = ", ".join(f"{name} {version}" for name, version in facts["environment"].items())
    usage, limits = trainer.task.advice(str(folder))  # type: ignore[attr-defined]
    return f"""# {folder.name}

A {config.model.family} for {config.task.name}: {parameters:,} parameters, {config.tokenizer.kind} tokenizer, trained for
{trainer.journey.step:,} steps on {trainer.journey.tokens:,} tokens. `config.toml` holds every option.

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
"""
