"""heed inspect RUN "a sentence" --alternatives T --instead TOKEN --saliency --patch-from "another" --without cross.0.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.output import COMMAND_LINE, table

if TYPE_CHECKING:
    from heedful.inspection.measures.interventions import EncodedPair
    from heedful.inspection.report.blocks import Block
    from heedful.search import SearchConfig
    from heedful.tasks.predictor import Predictor
    from heedful.tasks.system import System


Recovered = dict[str, tuple[list[str], list[str], list[list[float]]]]  # side -> hook points, tokens, nats; only patched sides
UNITS = {1.0: "nats", 1e-3: "thousandths of a nat", 1e-6: "millionths of a nat", 1e-9: "billionths of a nat"}


class Interventions(NamedTuple):
    """The requested interventions."""

    alternatives: int | None = None  # position of a target token, from 0
    instead: str | None = None  # the token to force there
    saliency: bool = False
    patch_from: str | None = None  # another source
    without: Sequence[str] = ()  # heads to remove, each as kind.layer.head


def compute(
    worker: Predictor, sentence: str, requested: Interventions, target: str | None = None, search: Sequence[str] = ()
) -> dict[str, Any]:
    """Apply the interventions to the model's translation, or to `target`; of a language model, to the sentence itself."""
    from heedful.errors import ConfigError

    if requested.instead is not None and requested.alternatives is None:
        raise ConfigError("--instead requires --alternatives", hint="add the target position: --alternatives 3 --instead TOKEN")
    system, config = worker.system, worker.search_config(search, origin=COMMAND_LINE)
    pair = encode_pair(worker, sentence, target, search)
    if pair.source is None and (requested.instead or requested.patch_from or requested.without):
        raise ConfigError("--instead, --patch-from and --without require a run of task 'translation'")
    result: dict[str, Any] = {
        "source": None if pair.source is None else pair.source.text,
        "source_tokens": [] if pair.source is None else pair.source.pieces,
        "target": pair.target.text,
        "target_tokens": pair.target.pieces,
        "end": system.target_tokenizer.pieces([system.target_tokenizer.specials.end])[0],
    }
    if requested.alternatives is not None:
        result |= compute_alternatives(system, pair, config, (requested.alternatives, requested.instead))
    if requested.without:
        result["without"] = compute_ablation(system, pair, config, requested.without)
    if requested.saliency:
        result["saliency"] = compute_saliency(system, pair)
    if requested.patch_from is not None:
        result["patched"] = compute_patching(system, pair, requested.patch_from)
    return result


def encode_pair(worker: Predictor, sentence: str, target: str | None, search: Sequence[str]) -> EncodedPair:
    from heedful.errors import ConfigError
    from heedful.inspection.measures.interventions import pair_of, text_of

    task = worker.run.task.name
    if task == "translation":
        return pair_of(worker.system, sentence, worker.search_config(search, origin=COMMAND_LINE), target)
    if task != "language":
        raise ConfigError(f"given a run of task {task!r}, which generates no text; expected a run of: translation, language")
    if target is not None:
        raise ConfigError("--target has no effect for a language model, which has only one text")
    return text_of(worker.system, sentence)


def compute_alternatives(
    system: System, pair: EncodedPair, config: SearchConfig, forced: tuple[int, str | None]
) -> dict[str, Any]:
    """forced: a target position, and the token to force there."""
    from heedful.inspection.measures.interventions import alternatives, continue_from, find_token

    position, piece = forced
    listed = alternatives(system, pair, position)
    result: dict[str, Any] = {"at": position, "alternatives": [one._asdict() for one in listed]}
    if piece is None:
        return result
    assert pair.source is not None, "only translations are decoded again"
    token = find_token(system, piece, listed)
    prefix = [*pair.target.ids[:position], token]
    again = continue_from(system, pair.source, config, prefix)
    instead = {"token": system.target_tokenizer.pieces([token])[0], "translation": again.text}
    return result | {"instead": instead | {"log_probability": again.log_probability, "score": again.score}}


def compute_ablation(system: System, pair: EncodedPair, config: SearchConfig, names: Sequence[str]) -> dict[str, Any]:
    from heedful.inspection.measures.interventions import (
        HeadName,
        continue_from,
        log_probabilities,
        target_tokens,
        without_heads,
    )

    assert pair.source is not None, "only translations are decoded again"
    tokens = target_tokens(system, pair)[:, None]
    before = log_probabilities(system, pair).gather(-1, tokens).sum()
    with without_heads(system, [HeadName.parse(name) for name in names]) as ablated:
        again = continue_from(ablated, pair.source, config, [])
        after = log_probabilities(ablated, pair).gather(-1, tokens).sum()
    output = {"heads": list(names), "translation": again.text, "log_probability": again.log_probability}
    return output | {"change": float(after - before)}


def compute_saliency(system: System, pair: EncodedPair) -> dict[str, Any]:
    from heedful.inspection.measures.interventions import saliency_of
    from heedful.inspection.measures.saliency import NOTE, agreement
    from heedful.inspection.measures.trace import sequences
    from heedful.nn.source_attention import mean_source_weights, source_attentions

    saliency = saliency_of(system, pair)
    result: dict[str, Any] = {name: values.tolist() for name, values in saliency._asdict().items()} | {"note": NOTE}
    if pair.source is not None and source_attentions(system.models[0]):
        weights = mean_source_weights(system.models[0], *sequences(system, *pair))
        ranked = {"gradient x input": saliency.source.abs(), "bound": saliency.source_bound}
        result |= {
            "attention": weights.tolist(),
            "agreement": {name: agreement(values, weights) for name, values in ranked.items()},
        }
    return result


def compute_patching(system: System, pair: EncodedPair, other: str) -> dict[str, Any]:
    from heedful.inspection.measures.interventions import patch_source

    result = patch_source(system, pair, other)
    return {
        "other": other,
        "log_probability": {"source": result.first.tolist(), "other": result.second.tolist()},
        "places": [one.output._asdict() | {"change": one.change.tolist()} for one in result.effects],
        "left_out": [output.name for output in result.left_out],
    }


def format_text(result: dict[str, Any]) -> str:
    parts = [" ".join(numbered(result))]
    if "alternatives" in result:
        parts.append(table(alternatives_rows(result)))
    parts += format_outputs(result)
    if "saliency" in result:
        parts.append(saliency_text(result, result["saliency"]))
    if "patched" in result:
        parts.append(patched_text(result, result["patched"]))
    return "\n\n".join(parts)


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Heading, Table, Words, sentence

    blocks: list[Block] = [Words(f"Target tokens by position: {' '.join(numbered(result))}", "hint")]
    if "alternatives" in result:
        shares = [one["probability"] for one in result["alternatives"]]
        rows = [("token", "probability", ""), *((*row[:2], row[2].replace("<-", "←")) for row in alternatives_rows(result)[1:])]
        heading = f"Alternative tokens at target position {result['at']}"
        blocks += [Heading(heading), Table(rows, "alternatives", {1: shares})]
    blocks += [Words(sentence(text)) for text in format_outputs(result)]
    if "saliency" in result:
        blocks += [Heading("Saliency"), *saliency_blocks(result, result["saliency"])]
    if "patched" in result:
        heading = f"Activations patched into the run on {result['patched']['other']!r}"
        blocks += [Heading(heading), *patched_blocks(result, result["patched"])]
    return blocks


def numbered(result: dict[str, Any]) -> list[str]:
    return [f"{position}:{piece}" for position, piece in enumerate([*result["target_tokens"], result["end"]])]


def alternatives_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = [(one["piece"], f"{one['probability']:.4f}", "<- target" * one["chosen"]) for one in result["alternatives"]]
    return [(f"position {result['at']}", "probability", ""), *rows]


def format_outputs(result: dict[str, Any]) -> list[str]:
    """The translations with a forced token or without heads."""
    parts = []
    if "instead" in result:
        one = result["instead"]
        parts.append(f"with {one['token']!r} forced: {one['translation']}  (log p {one['log_probability']:.3f})")
    if "without" in result:
        one = result["without"]
        change = f"log p of the target above: {one['change']:+.3f}"
        parts.append(f"without {', '.join(one['heads'])}: {one['translation']}  (log p {one['log_probability']:.3f}; {change})")
    return parts


def token_labels(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Target tokens and input tokens: of the source, or of a language model the previous tokens."""
    target = [*result["target_tokens"], result["end"]]
    return target, [*result["source_tokens"], result["end"]] if result["source_tokens"] else ["start", *target[:-1]]


def saliency_text(result: dict[str, Any], saliency: dict[str, Any]) -> str:
    from heedful.inspection.analyses.sentence_figures import format_agreement

    rows, columns = token_labels(result)
    has_source = bool(result["source_tokens"])
    side = "source" if has_source else "target"
    titles = {
        side: f"gradient x input of each {'source' if has_source else 'previous'} token",
        f"{side}_bound": "|gradient| |input|, its bound",
    }
    parts = []
    for name, title in titles.items():
        unit, unit_name = choose_unit(saliency[name])
        scaled = [[value / unit for value in row] for row in saliency[name]]
        parts += [f"{title}, in {unit_name}", matrix(rows, columns, scaled)]
    if "attention" in saliency:
        parts += ["attention, mean of all layers and heads", matrix(rows, columns, saliency["attention"])]
        parts.append(format_agreement(saliency["agreement"]))
    return "\n".join([*parts, saliency["note"]])


def saliency_blocks(result: dict[str, Any], saliency: dict[str, Any]) -> list[Block]:
    from heedful.inspection.analyses.sentence_figures import describe_saliency, saliency_figures
    from heedful.inspection.report.blocks import Pictures, Words, sentence

    caption = ". ".join(map(sentence, describe_saliency(saliency)))
    return [Pictures(saliency_figures(saliency, *token_labels(result)), f"{caption}."), Words(saliency["note"], "note")]


def patched_text(result: dict[str, Any], patched: dict[str, Any]) -> str:
    parts = [describe_patching(patched)]
    parts += [matrix(*recovered) for recovered in recovered_by_side(result, patched).values()]
    return "\n".join([*parts, *list_unpatched(patched)])


def patched_blocks(result: dict[str, Any], patched: dict[str, Any]) -> list[Block]:
    from heedful.inspection.analyses.sentence_figures import PATCHING_COLORS, patching_figures
    from heedful.inspection.report.blocks import Pictures, Words, sentence

    figures = patching_figures(recovered_by_side(result, patched))
    pictures = [Pictures(figures, f"{sentence(PATCHING_COLORS)}.")] if figures else []
    unpatched = (Words(sentence(text)) for text in list_unpatched(patched))
    return [Words(sentence(describe_patching(patched))), *pictures, *unpatched]


def describe_patching(patched: dict[str, Any]) -> str:
    first, second = (sum(patched["log_probability"][name]) for name in ("source", "other"))
    return (
        f"log p of the target: {first:.3f} given this source, {second:.3f} given {patched['other']!r}. Nats recovered when one "
        "position is patched with its activation under this source:"
    )


def list_unpatched(patched: dict[str, Any]) -> list[str]:
    names = ", ".join(patched["left_out"])
    return [f"not patched because the sources differ in length: {names}"] if names else []


def recovered_by_side(result: dict[str, Any], patched: dict[str, Any]) -> Recovered:
    sides = {"source": [*result["source_tokens"], result["end"]], "target": [*result["target_tokens"], result["end"]]}
    recovered: Recovered = {}
    for side in ("source", "state", "target"):
        places = [one for one in patched["places"] if one["side"] == side]
        labels = sides.get(side) or [f"vector {at}" for at in range(max((len(one["change"]) for one in places), default=0))]
        places = [one for one in places if len(one["change"]) == len(labels)]
        if places:
            nats = [[sum(tokens) for tokens in one["change"]] for one in places]
            recovered[side] = [one["name"] for one in places], labels, nats
    return recovered


def choose_unit(values: Sequence[Sequence[float]]) -> tuple[float, str]:
    """The largest unit in which the largest value is at least 1, so that small values are not all shown as 0.00."""
    largest = max(abs(value) for row in values for value in row)
    return next(((unit, name) for unit, name in UNITS.items() if largest >= unit), (1.0, "nats"))


def matrix(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    cells = [[f"{round(value, 2) + 0.0:.2f}" for value in row] for row in values]
    width = max(5, *(len(cell) for row in cells for cell in row))
    cells = [[cell.rjust(width) for cell in row] for row in cells]
    return table([("", *columns), *((name, *row) for name, row in zip(rows, cells, strict=True))])
