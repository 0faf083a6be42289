"""heed inspect RUN --experts: expert utilization, over sentences of the validation data.

layer                   expert 0  1    2    3    max/mean  tokens
encoder.0.feed_forward  31%       22%  25%  22%  1.24      3,211
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.inspection.report.blocks import Block
    from heedful.tasks.predictor import Predictor


def compute(worker: Predictor, *, sentences: int = 200) -> dict[str, Any]:
    from heedful.errors import ConfigError
    from heedful.inspection.analyses.heads import read_samples

    task = worker.run.task.name
    if task != "translation":
        raise ConfigError(f"--experts: given a run of task {task!r}, expected a run of task 'translation'")
    pairs = [(one.source, one.target) for one in islice(read_samples(worker, None, None), sentences) if one.target]
    gates = record_gates(worker, pairs)
    used = int((next(iter(gates.values()))[0] > 0).sum())  # the same for every token
    return {"sentences": len(pairs), "used": used, "layers": {name: summarize_gates(one) for name, one in gates.items()}}


def record_gates(worker: Predictor, pairs: list[tuple[str, str]]) -> dict[str, Tensor]:
    """The gate weights of each layer of experts, (tokens, experts); recorded pair by pair, so that no token is padding."""
    import torch

    from heedful.errors import ConfigError
    from heedful.nn.experts import Experts
    from heedful.nn.hooks import record
    from heedful.nn.model import inference_context
    from heedful.tasks.system import collate_one

    model, system = worker.model, worker.system
    names = [name for name, module in model.named_modules() if isinstance(module, Experts)]
    if not names:
        raise ConfigError("this model has no experts", hint="train one with model.experts=8 or with the recipe demo-experts")
    gates: dict[str, list[Tensor]] = {name: [] for name in names}
    for source, target in pairs:
        ids = system.source_tokenizer.encode(source), system.target_tokenizer.encode(target)
        source_ids, target_in = collate_one(system, *ids)
        with inference_context(model), record(model, *(f"{name}.gates" for name in names)) as recorded:
            model.forced(source_ids, None, target_in)
        for name in names:
            gates[name].append(recorded[f"{name}.gates"])
    return {name: torch.cat(parts) for name, parts in gates.items()}


def summarize_gates(gates: Tensor) -> dict[str, Any]:
    from heedful.nn.experts import expert_utilization

    shares, weights = expert_utilization(gates), gates.sum(0) / gates.sum()
    return {
        "tokens": len(gates),
        "choices": shares.tolist(),  # share of the routed tokens that each expert receives
        "weight": weights.tolist(),  # share of the gate weight
        "max_over_mean": float(shares.max() * len(shares)),
    }


def format_text(result: dict[str, Any]) -> str:
    return f"{format_header(result)}\n{table(layer_rows(result))}\n{format_legend(result)}"


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Table, Words, sentence

    layers = list(result["layers"].values())
    bars = {expert + 1: [layer["choices"][expert] for layer in layers] for expert in range(len(layers[0]["choices"]))}
    return [
        Words(f"{sentence(format_header(result))}."),
        Table(layer_rows(result), "experts", bars),
        Words(f"{sentence(format_legend(result))}.", "hint"),
    ]


def format_header(result: dict[str, Any]) -> str:
    routing = f"share of routed tokens per expert, {result['used']} experts per token"
    return f"{routing}; {result['sentences']} sentences of the run's validation data"


def layer_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    head = ("layer", "expert 0", *map(str, range(1, count_experts(result))), "max/mean", "tokens")
    rows = [
        (name, *(f"{share:.0%}" for share in layer["choices"]), f"{layer['max_over_mean']:.2f}", f"{layer['tokens']:,}")
        for name, layer in result["layers"].items()
    ]
    return [head, *rows]


def format_legend(result: dict[str, Any]) -> str:
    worst = f"{count_experts(result) / result['used']:.2f} if every token is routed to the same {result['used']}"
    return f"max/mean: load of the busiest expert over the mean load; 1.00 if all are used equally, {worst}"


def count_experts(result: dict[str, Any]) -> int:
    return max(len(layer["choices"]) for layer in result["layers"].values())
