"""heed inspect RUN: what the model is made of, where it attends, and what can be asked.

part     parameters        kind     layers  heads
encoder     265,728        encoder  2       4 4
decoder     398,848        cross    2       4 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.worker import Worker

ASK = {
    '"a sentence"': "its translation, alignment, and what every head looked at",
    '"a sentence" --kind cross --layer 0 --head 1': "one map in full",
    '"a sentence" --html look.html': "all of it as one page for a browser",
    '"a sentence" --picture look.svg': "the alignment as a picture; with --kind a wall of heads, with --head one map",
    '"a sentence" --lens': "what each layer would say next",
    '"a sentence" --saliency': "gradient x input beside attention",
    '"a sentence" --alternatives 0': "what else might have been said at a token",
    "--heads": "what each head does, and how much depends on it",
    "--positions": "the position schemes, and lengths beyond those trained on",
    "--cost": "parameters, work and memory of every part",
}


def found(worker: Worker) -> dict[str, Any]:
    from torch import nn

    model = worker.model
    assert isinstance(model, nn.Module), "models are modules"
    counted: set[int] = set()

    def fresh(part: nn.Module) -> int:
        new = {id(one): one.numel() for one in part.parameters() if id(one) not in counted}
        counted.update(new)
        return sum(new.values())

    parts = {name: fresh(part) for name, part in model.named_children()}
    source, target = worker.system.source_tokenizer, worker.system.target_tokenizer
    return {
        "family": worker.run.model.family,
        "task": worker.run.task.name,
        "checkpoint": str(worker.checkpoint),
        "parameters": sum(one.numel() for one in model.parameters()),
        "parts": {name: count for name, count in parts.items() if count},
        "attention": heads_of(worker),
        "vocabulary": {"source": len(source), "target": len(target), "tokenizer": target.description},
    }


def heads_of(worker: Worker) -> dict[str, list[int]]:
    """For each kind of attention the heads of its layers; seen on a sentence without words."""
    from heedful.inspection.maps import attention_maps
    from heedful.tasks.translating import collate_one

    if worker.run.task.name not in ("translation", "language"):
        return {}
    pair = collate_one(worker.system, [], [])
    seen: dict[str, list[int]] = {}
    for one in attention_maps(worker.model, *(pair if worker.run.task.name == "translation" else (pair[0][:, :0], pair[1]))):
        seen.setdefault(one.kind.name, []).append(len(one.weights))
    return seen


def as_text(found: dict[str, Any]) -> str:
    parts = table([("part", f"{'parameters':>12}"), *((name, f"{count:>12,}") for name, count in found["parts"].items())])
    kinds = [("attention", "layers", "heads of each"), *as_rows(found["attention"])]
    sizes, kind = found["vocabulary"], next(reversed(found["attention"]), "cross")
    asks = [("  " + how.replace("cross", kind), what) for how, what in ASK.items()]
    return (
        f"{found['family']} for {found['task']}, {found['parameters']:,} parameters, {found['checkpoint']}\n"
        f"vocabulary {sizes['source']:,} and {sizes['target']:,}, {sizes['tokenizer']}\n\n"
        f"{parts}\n\n{table(kinds) if found['attention'] else 'it does not attend to a sequence that can be shown'}\n\n"
        f"what can be asked, after heed inspect RUN:\n{table(asks)}"
    )


def as_rows(attention: dict[str, list[int]]) -> list[tuple[str, str, str]]:
    return [(kind, str(len(heads)), " ".join(map(str, heads))) for kind, heads in attention.items()]
