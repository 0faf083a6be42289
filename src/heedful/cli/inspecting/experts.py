"""heed inspect RUN --experts: who does the work, over sentences of the validation data.

layer                   expert 0  1    2    3    most over mean  tokens
encoder.0.feed_forward  31%       22%  25%  22%  1.24            3,211
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.inspection.report.blocks import Block
    from heedful.predictor import Predictor

TAP = ".gates"


def found(worker: Predictor, *, sentences: int = 200) -> dict[str, Any]:
    from heedful.cli.inspecting.heads import samples_of
    from heedful.errors import ConfigError

    task = worker.run.task.name
    if task != "translation":
        raise ConfigError(f"given a run of task {task!r}; experts can be looked at in runs of: translation")
    pairs = [(one.source, one.target) for one in islice(samples_of(worker, None, None), sentences) if one.target]
    gates = gates_of(worker, pairs)
    used = int((next(iter(gates.values()))[0] > 0).sum())  # by one token as by any
    return {"sentences": len(pairs), "used": used, "layers": {name: as_plain(one) for name, one in gates.items()}}


def gates_of(worker: Predictor, pairs: list[tuple[str, str]]) -> dict[str, Tensor]:
    """The weights that each layer of experts gave them, (tokens, experts); pair by pair, so that no token is padding."""
    import torch
    from torch import nn

    from heedful.errors import ConfigError
    from heedful.inspection.attention_maps import forced
    from heedful.nn.hooks import hook_points, record
    from heedful.tasks.translate import collate_one

    model, system = worker.model, worker.system
    assert isinstance(model, nn.Module), "models are modules"
    names = [name for name in hook_points(model) if name.endswith(TAP)]
    if not names:
        raise ConfigError("this model has no experts", hint="train one with model.experts=8, or the recipe demo-experts")
    heard: dict[str, list[Tensor]] = {name.removesuffix(TAP): [] for name in names}
    for read, said in pairs:
        source, target_in = collate_one(system, system.source_tokenizer.encode(read), system.target_tokenizer.encode(said))
        with forced(model), record(model, *names) as seen:
            model.step(target_in, model.start(source, None, room=0))
        for name in names:
            heard[name.removesuffix(TAP)].append(seen[name])
    return {name: torch.cat(parts) for name, parts in heard.items()}


def as_plain(gates: Tensor) -> dict[str, Any]:
    from heedful.nn.experts import expert_utilization

    shares, weights = expert_utilization(gates), gates.sum(0) / gates.sum()
    return {
        "tokens": len(gates),
        "choices": shares.tolist(),  # of all choices, the share that fell on each expert
        "weight": weights.tolist(),  # of all weight likewise
        "most_over_mean": float(shares.max() * len(shares)),
    }


def as_text(found: dict[str, Any]) -> str:
    return f"{over(found)}\n{table(rows_of(found))}\n{meaning(found)}"


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Table, Words, sentence

    layers = list(found["layers"].values())
    bars = {expert + 1: [layer["choices"][expert] for layer in layers] for expert in range(len(layers[0]["choices"]))}
    return [
        Words(f"{sentence(over(found))}."),
        Table(rows_of(found), "experts", bars),
        Words(f"{sentence(meaning(found))}.", "hint"),
    ]


def over(found: dict[str, Any]) -> str:
    chosen = f"the share of choices that fell on each expert, {found['used']} for a token"
    return f"{chosen}; {found['sentences']} sentences of the run's validation data"


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    head = ("layer", "expert 0", *map(str, range(1, most_of(found))), "most over mean", "tokens")
    rows = [
        (name, *(f"{share:.0%}" for share in layer["choices"]), f"{layer['most_over_mean']:.2f}", f"{layer['tokens']:,}")
        for name, layer in found["layers"].items()
    ]
    return [head, *rows]


def meaning(found: dict[str, Any]) -> str:
    worst = f"{most_of(found) / found['used']:.2f} where the same {found['used']} are always chosen"
    return f"most over mean: 1.00 where all are used alike, {worst}"


def most_of(found: dict[str, Any]) -> int:
    return max(len(layer["choices"]) for layer in found["layers"].values())
