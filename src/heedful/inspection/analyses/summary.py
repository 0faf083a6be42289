"""heed inspect RUN: the model's parts and parameters, its attention layers, and the views of this run.

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

    from heedful.inspection.measures.attention_maps import AttentionMap
    from heedful.tasks.predictor import Predictor
    from heedful.text.tokenizer import Tokenizer

# Arguments of heed inspect RUN, what they show, and what the run must have (see list_views)
VIEWS = (
    ('"a sentence"', "translation, word alignment, attention of every head", "cross-attention"),
    ('"a sentence"', "translation, attention of every head", "translation without cross-attention"),
    ('"a sentence"', "attention of every head", "language model with attention"),
    ('"a sentence" --kind {kind} --layer {layer} --head {head}', "all attention weights of one head", "attention"),
    ('"a sentence" --html report.html', "interactive report, one HTML file", "attention"),
    (
        '"a sentence" --picture attention.svg',
        "picture of the word alignment; with --kind a grid of heads, with --head one head",
        "cross-attention",
    ),
    (
        '"a sentence" --kind {kind} --picture attention.svg',
        "picture of a grid of heads; with --head one head",
        "attention but no cross-attention",
    ),
    ('"a sentence" --lens', "logit lens: next-token predictions of each layer", "generation"),
    ('"a sentence" --saliency', "gradient x input, compared with attention", "cross-attention"),
    ('"a sentence" --saliency', "gradient x input of the source tokens", "no cross-attention"),
    ('"a sentence" --saliency', "gradient x input of the previous tokens", "language model"),
    ('"a sentence" --alternatives 0', "alternative tokens at a target position", "generation"),
    ("--heads", "role and importance of each head", "attention"),
    ("--positions", "positional encodings, and loss beyond the training lengths", "positions"),
    ("--experts", "expert utilization", "experts"),
    ("--cost", "parameters, FLOP and memory of every part", "generation"),
)


def compute(worker: Predictor) -> dict[str, Any]:

    from heedful.inspection.measures.positions import schemes

    model = worker.model
    counted: set[int] = set()

    def count_new(part: nn.Module) -> int:
        """Parameters of a part without those shared with an earlier part."""
        new = {id(one): one.numel() for one in part.parameters() if id(one) not in counted}
        counted.update(new)
        return sum(new.values())

    parts = {name: count_new(part) for name, part in model.named_children()}
    source, target = worker.system.source_tokenizer, worker.system.target_tokenizer
    maps = attention_maps_of(worker)
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
        "views": list_views(worker.run.task.name, maps, has_positions=bool(schemes(model)), has_experts=has_experts(model)),
        "vocabulary": {"source": len(source), "target": len(target), "tokenizer": describe_tokenizers(source, target)},
    }


def describe_tokenizers(source: Tokenizer, target: Tokenizer) -> str:
    if source.fingerprint == target.fingerprint:
        return f"{target.description}, for both sides"
    return f"{source.description} (source); {target.description} (target)"


def attention_maps_of(worker: Predictor) -> list[AttentionMap]:
    """The attention maps of the model, recorded on an empty sentence."""
    from heedful.inspection.measures.attention_maps import attention_maps
    from heedful.tasks.system import collate_one

    if worker.run.task.name not in ("translation", "language"):
        return []
    source, target = collate_one(worker.system, [], [])
    return attention_maps(worker.model, source if worker.run.task.name == "translation" else source[:, :0], target)


def has_experts(model: nn.Module) -> bool:
    from heedful.nn.experts import Experts

    return any(isinstance(part, Experts) for part in model.modules())


def list_views(task: str, maps: Sequence[AttentionMap], *, has_positions: bool, has_experts: bool) -> dict[str, str]:
    """The views of such a run: arguments of heed inspect RUN -> what they show."""
    translates = task == "translation"
    with_heads = [one for one in maps if len(one.weights)]  # all heads of a layer may have been pruned
    attends_to_source = translates and any(one.kind.queries == "target" and one.kind.keys != "target" for one in with_heads)
    conditions = {
        "attention": bool(with_heads),
        "cross-attention": attends_to_source,
        "no cross-attention": translates and not attends_to_source,
        "attention but no cross-attention": bool(with_heads) and not attends_to_source,
        "translation without cross-attention": bool(with_heads) and translates and not attends_to_source,
        "language model": task == "language",
        "language model with attention": bool(with_heads) and task == "language",
        "generation": task in ("translation", "language"),
        "positions": has_positions,
        "experts": has_experts and translates,
    }
    views = [(arguments, shows) for arguments, shows, condition in VIEWS if conditions[condition]]
    if not with_heads:
        return dict(views)
    one = next(one for one in with_heads if one.kind.name == with_heads[-1].kind.name)  # the first layer of the last kind
    example = {"kind": one.kind.name, "layer": one.layer, "head": min(1, len(one.weights) - 1)}
    return {arguments.format(**example): shows for arguments, shows in views}


def format_text(result: dict[str, Any]) -> str:
    parts = table([("part", f"{'parameters':>12}"), *((name, f"{count:>12,}") for name, count in result["parts"].items())])
    attention = table([("attention", "layers", "heads per layer"), *attention_rows(result["attention"])])
    views = [(f"  {arguments}", shows) for arguments, shows in result["views"].items()]
    return (
        f"{result['family']} for {result['task']}, {result['parameters']:,} parameters, {result['checkpoint']}\n"
        f"vocabulary: {result['vocabulary']['tokenizer']}\n\n"
        f"{parts}\n\n{attention if result['attention'] else 'no attention over a sequence'}\n\n"
        f"views, as arguments of heed inspect RUN:\n{table(views)}"
    )


def attention_rows(attention: dict[str, list[int]]) -> list[tuple[str, str, str]]:
    return [(kind, str(len(heads)), " ".join(map(str, heads))) for kind, heads in attention.items()]
