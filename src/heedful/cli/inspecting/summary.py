"""heed inspect RUN: what the model is made of, where it attends, and what can be asked.

part     parameters        kind     layers  heads
encoder     265,728        encoder  2       4 4
decoder     398,848        cross    2       4 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from heedful.inspection.attention_maps import AttentionMap
    from heedful.predictor import Predictor
    from heedful.text.tokenizer import Tokenizer

# How to ask, what it tells, and what a run must have: attention, at a source that it translates, in one but never at it from
# the translation, or in a text; a position scheme; words to say, of a translation or of a text; experts.
ASK = (
    ('"a sentence"', "its translation, alignment, and what every head looked at", "source"),
    ('"a sentence"', "its translation, and what every head looked at", "apart"),
    ('"a sentence"', "what every head looked at", "text"),
    ('"a sentence" --kind {kind} --layer {layer} --head {head}', "one map in full", "attention"),
    ('"a sentence" --html look.html', "all of it as one page for a browser", "attention"),
    (
        '"a sentence" --picture look.svg',
        "the alignment as a picture; with --kind a wall of heads, with --head one map",
        "source",
    ),
    ('"a sentence" --kind {kind} --picture look.svg', "a wall of heads; with --head one map", "unaligned"),
    ('"a sentence" --lens', "what each layer would say next", "words"),
    ('"a sentence" --saliency', "gradient x input beside attention", "source"),
    ('"a sentence" --saliency', "gradient x input of what was read", "unlooked"),
    ('"a sentence" --saliency', "gradient x input of what was read before", "reading"),
    ('"a sentence" --alternatives 0', "what else might have been said at a token", "words"),
    ("--heads", "what each head does, and how much depends on it", "attention"),
    ("--positions", "the position schemes, and lengths beyond those trained on", "positions"),
    ("--experts", "who of a mixture of experts does the work", "experts"),
    ("--cost", "parameters, work and memory of every part", "words"),
)


def found(worker: Predictor) -> dict[str, Any]:
    from torch import nn

    from heedful.inspection.positions import schemes

    model = worker.model
    assert isinstance(model, nn.Module), "models are modules"
    counted: set[int] = set()

    def fresh(part: nn.Module) -> int:
        new = {id(one): one.numel() for one in part.parameters() if id(one) not in counted}
        counted.update(new)
        return sum(new.values())

    parts = {name: fresh(part) for name, part in model.named_children()}
    source, target = worker.system.source_tokenizer, worker.system.target_tokenizer
    maps = maps_of(worker)
    attention: dict[str, list[int]] = {}
    for one in maps:
        attention.setdefault(one.kind.name, []).append(len(one.weights))
    return {
        "family": worker.run.model.family,
        "task": worker.run.task.name,
        "checkpoint": str(worker.checkpoint),
        "parameters": sum(one.numel() for one in model.parameters()),
        "parts": {name: count for name, count in parts.items() if count},
        "attention": attention,
        "ask": asks_of(worker.run.task.name, maps, has_positions=bool(schemes(model)), has_experts=has_experts(model)),
        "vocabulary": {"source": len(source), "target": len(target), "tokenizer": described(source, target)},
    }


def described(source: Tokenizer, target: Tokenizer) -> str:
    """One for both sides, or one for each."""
    if source.fingerprint == target.fingerprint:
        return f"{target.description}, for both sides"
    return f"{source.description} (source); {target.description} (target)"


def maps_of(worker: Predictor) -> list[AttentionMap]:
    """Where the model attends; seen on a sentence without words."""
    from heedful.inspection.attention_maps import attention_maps
    from heedful.tasks.translate import collate_one

    if worker.run.task.name not in ("translation", "language"):
        return []
    source, target = collate_one(worker.system, [], [])
    return attention_maps(worker.model, source if worker.run.task.name == "translation" else source[:, :0], target)


def has_experts(model: nn.Module) -> bool:
    from heedful.nn.experts import Experts

    return any(isinstance(part, Experts) for part in model.modules())


def asks_of(task: str, maps: Sequence[AttentionMap], *, has_positions: bool, has_experts: bool) -> dict[str, str]:
    """What can be asked of such a run -> what it tells."""
    speaks = task in ("translation", "language")
    some = [one for one in maps if len(one.weights)]  # a layer may have lost all its heads
    looks = any(one.kind.queries == "target" and one.kind.keys != "target" for one in some) and task == "translation"
    known = {
        "attention": bool(some),
        "source": looks,
        "apart": bool(some) and task == "translation" and not looks,
        "text": bool(some) and task == "language",
        "unaligned": bool(some) and not looks,
        "unlooked": task == "translation" and not looks,
        "reading": task == "language",
        "words": speaks,
        "positions": has_positions,
        "experts": has_experts and task == "translation",
    }
    has = {name for name, is_so in known.items() if is_so}
    if not some:
        return {how: what for how, what, needs in ASK if needs in has}
    one = next(one for one in some if one.kind.name == some[-1].kind.name)  # the first layer of the last kind
    place = {"kind": one.kind.name, "layer": one.layer, "head": min(1, len(one.weights) - 1)}
    return {how.format(**place): what for how, what, needs in ASK if needs in has}


def as_text(found: dict[str, Any]) -> str:
    parts = table([("part", f"{'parameters':>12}"), *((name, f"{count:>12,}") for name, count in found["parts"].items())])
    kinds = [("attention", "layers", "heads of each"), *as_rows(found["attention"])]
    asks = [(f"  {how}", what) for how, what in found["ask"].items()]
    return (
        f"{found['family']} for {found['task']}, {found['parameters']:,} parameters, {found['checkpoint']}\n"
        f"vocabulary: {found['vocabulary']['tokenizer']}\n\n"
        f"{parts}\n\n{table(kinds) if found['attention'] else 'it does not attend to a sequence that can be shown'}\n\n"
        f"what can be asked, after heed inspect RUN:\n{table(asks)}"
    )


def as_rows(attention: dict[str, list[int]]) -> list[tuple[str, str, str]]:
    return [(kind, str(len(heads)), " ".join(map(str, heads))) for kind, heads in attention.items()]
