"""heed inspect RUN "a sentence" --alternatives T --instead TOKEN --saliency --patch-from "another" --without cross.0.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.output import COMMAND_LINE, table

if TYPE_CHECKING:
    from heedful.inspection.report.blocks import Block
    from heedful.predictor import Predictor
    from heedful.search import SearchConfig
    from heedful.studies.interventions import EncodedPair
    from heedful.tasks.translate import System


Won = dict[str, tuple[list[str], list[str], list[list[float]]]]  # side -> places, tokens, nats: as far as there is any
UNITS = {1.0: "nats", 1e-3: "thousandths of a nat", 1e-6: "millionths of a nat", 1e-9: "billionths of a nat"}


class Asked(NamedTuple):
    """What if; all that is not said is not asked."""

    alternatives: int | None = None  # the place of a target token, from 0
    instead: str | None = None  # this token there
    saliency: bool = False
    patch_from: str | None = None  # another source
    without: Sequence[str] = ()  # heads, each as kind.layer.head


def found(
    worker: Predictor, sentence: str, asked: Asked, target: str | None = None, search: Sequence[str] = ()
) -> dict[str, Any]:
    """Of the translation that the search finds, or of the given one; of a language model, of the sentence itself."""
    from heedful.errors import ConfigError

    if asked.instead is not None and asked.alternatives is None:
        raise ConfigError(
            "--instead was given without --alternatives", hint="--alternatives 3 --instead TOKEN: at target token 3"
        )
    system, config = worker.system, worker.search_config(search, origin=COMMAND_LINE)
    pair = pair_for(worker, sentence, target, search)
    if pair.source is None and (asked.instead or asked.patch_from or asked.without):
        raise ConfigError("--instead, --patch-from and --without need a run of task 'translation'")
    result: dict[str, Any] = {
        "source": None if pair.source is None else pair.source.text,
        "source_tokens": [] if pair.source is None else pair.source.pieces,
        "target": pair.target.text,
        "target_tokens": pair.target.pieces,
        "end": system.target_tokenizer.pieces([system.target_tokenizer.specials.end])[0],
    }
    if asked.alternatives is not None:
        result |= alternatives_found(system, pair, config, (asked.alternatives, asked.instead))
    if asked.without:
        result["without"] = without_found(system, pair, config, asked.without)
    if asked.saliency:
        result["saliency"] = saliency_found(system, pair)
    if asked.patch_from is not None:
        result["patched"] = patched_found(system, pair, asked.patch_from)
    return result


def pair_for(worker: Predictor, sentence: str, target: str | None, search: Sequence[str]) -> EncodedPair:
    from heedful.errors import ConfigError
    from heedful.studies.interventions import pair_of, text_of

    task = worker.run.task.name
    if task == "translation":
        return pair_of(worker.system, sentence, worker.search_config(search, origin=COMMAND_LINE), target)
    if task != "language":
        raise ConfigError(f"a run of task {task!r} says no words; expected a run of: translation, language")
    if target is not None:
        raise ConfigError("--target was given, but a language model has only one text")
    return text_of(worker.system, sentence)


def alternatives_found(
    system: System, pair: EncodedPair, config: SearchConfig, asked: tuple[int, str | None]
) -> dict[str, Any]:
    from heedful.studies.interventions import alternatives, continue_from, token_named

    place, piece = asked
    listed = alternatives(system, pair, place)
    result: dict[str, Any] = {"at": place, "alternatives": [one._asdict() for one in listed]}
    if piece is None:
        return result
    assert pair.source is not None, "asked of translations only"
    token = token_named(system, piece, listed)
    beginning = [*pair.target.ids[:place], token]
    again = continue_from(system, pair.source, config, beginning)
    said = {"token": system.target_tokenizer.pieces([token])[0], "translation": again.text}
    return result | {"instead": said | {"log_probability": again.log_probability, "score": again.score}}


def without_found(system: System, pair: EncodedPair, config: SearchConfig, names: Sequence[str]) -> dict[str, Any]:
    from heedful.studies.interventions import HeadName, continue_from, log_probabilities, wanted, without_heads

    assert pair.source is not None, "asked of translations only"
    tokens = wanted(system, pair)[:, None]
    before = log_probabilities(system, pair).gather(-1, tokens).sum()
    with without_heads(system, [HeadName.named(name) for name in names]) as less:
        again = continue_from(less, pair.source, config, [])
        after = log_probabilities(less, pair).gather(-1, tokens).sum()
    said = {"heads": list(names), "translation": again.text, "log_probability": again.log_probability}
    return said | {"change": float(after - before)}


def saliency_found(system: System, pair: EncodedPair) -> dict[str, Any]:
    from heedful.inspection.attention_maps import attentions
    from heedful.inspection.saliency import NOTE, agreement
    from heedful.studies.interventions import saliency_of
    from heedful.studies.trace import sequences

    seen = saliency_of(system, pair)
    result: dict[str, Any] = {name: values.tolist() for name, values in seen._asdict().items()} | {"note": NOTE}
    kinds = {kind.name for kind in attentions(system.models[0]).values()}  # type: ignore[arg-type]
    if pair.source is not None and kinds & {"cross", "within"}:
        from heedful.inspection.alignment import attention_between

        looked = attention_between(system.models[0], sequences(system, *pair))
        ranked = {"gradient x input": seen.source.abs(), "bound": seen.source_bound}
        agree = {name: agreement(values, looked) for name, values in ranked.items()}
        result |= {"attention": looked.tolist(), "agreement": agree}
    return result


def patched_found(system: System, pair: EncodedPair, other: str) -> dict[str, Any]:
    from heedful.studies.interventions import patched

    seen = patched(system, pair, other)
    return {
        "other": other,
        "log_probability": {"source": seen.first.tolist(), "other": seen.second.tolist()},
        "places": [place._asdict() | {"change": place.change.tolist()} for place in seen.places],
        "left_out": seen.left_out,
    }


def as_text(found: dict[str, Any]) -> str:
    parts = [" ".join(numbered(found))]
    if "alternatives" in found:
        parts.append(table(alternatives_rows(found)))
    parts += told(found)
    if "saliency" in found:
        parts.append(saliency_text(found, found["saliency"]))
    if "patched" in found:
        parts.append(patched_text(found, found["patched"]))
    return "\n\n".join(parts)


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Heading, Table, Words, sentence

    blocks: list[Block] = [Words(f"What is said, numbered: {' '.join(numbered(found))}", "hint")]
    if "alternatives" in found:
        shares = [one["probability"] for one in found["alternatives"]]
        rows = [("token", "probability", ""), *((*row[:2], row[2].replace("<-", "←")) for row in alternatives_rows(found)[1:])]
        blocks += [Heading(f"What else might be said at {found['at']}"), Table(rows, "alternatives", {1: shares})]
    blocks += [Words(sentence(text)) for text in told(found)]
    if "saliency" in found:
        blocks += [Heading("What each token rests on"), *saliency_blocks(found, found["saliency"])]
    if "patched" in found:
        blocks += [Heading(f"Inner states put into {found['patched']['other']!r}"), *patched_blocks(found, found["patched"])]
    return blocks


def numbered(found: dict[str, Any]) -> list[str]:
    return [f"{at}:{piece}" for at, piece in enumerate([*found["target_tokens"], found["end"]])]


def alternatives_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = [(one["piece"], f"{one['probability']:.4f}", "<- said" * one["chosen"]) for one in found["alternatives"]]
    return [("at " + str(found["at"]), "probability", ""), *rows]


def told(found: dict[str, Any]) -> list[str]:
    """What was said instead, with a token given or heads taken away."""
    parts = []
    if "instead" in found:
        one = found["instead"]
        parts.append(f"with {one['token']!r} there: {one['translation']}  (log p {one['log_probability']:.3f})")
    if "without" in found:
        one = found["without"]
        change = f"what was said before {'gains' if one['change'] > 0 else 'loses'} {abs(one['change']):.3f} nats"
        parts.append(f"without {', '.join(one['heads'])}: {one['translation']}  (log p {one['log_probability']:.3f}; {change})")
    return parts


def sides_of(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Tokens that are said, and those that were read, or said before where nothing was read."""
    said = [*found["target_tokens"], found["end"]]
    return said, [*found["source_tokens"], found["end"]] if found["source_tokens"] else ["start", *said[:-1]]


def saliency_text(found: dict[str, Any], seen: dict[str, Any]) -> str:
    said, read = sides_of(found)
    alone = not found["source_tokens"]
    side = "target" if alone else "source"
    named = {
        side: f"gradient x input of each {'earlier' if alone else 'source'} token",
        f"{side}_bound": "|gradient| |input|, its bound",
    }
    parts = []
    for name, what in named.items():
        unit, called = unit_of(seen[name])
        parts += [f"{what}, in {called}", matrix(said, read, [[value / unit for value in row] for row in seen[name]])]
    if "attention" in seen:
        parts += ["attention, mean of all layers and heads", matrix(said, read, seen["attention"])]
        agreed = ", ".join(f"{name} {value:+.2f}" for name, value in seen["agreement"].items())
        parts.append(f"how far they rank source tokens as attention does, Kendall's tau (1: alike, 0: unrelated): {agreed}")
    return "\n".join([*parts, seen["note"]])


def saliency_blocks(found: dict[str, Any], seen: dict[str, Any]) -> list[Block]:
    from heedful.cli.inspecting.figures import about_saliency, saliency_sketches
    from heedful.inspection.report.blocks import Pictures, Words, sentence

    caption = ". ".join(map(sentence, about_saliency(seen)))
    return [Pictures(saliency_sketches(seen, *sides_of(found)), f"{caption}."), Words(seen["note"], "note")]


def patched_text(found: dict[str, Any], seen: dict[str, Any]) -> str:
    parts = [patched_told(seen)]
    parts += [matrix(*won) for won in won_back(found, seen).values()]
    return "\n".join([*parts, *not_patched(seen)])


def patched_blocks(found: dict[str, Any], seen: dict[str, Any]) -> list[Block]:
    from heedful.cli.inspecting.figures import WON, patched_sketches
    from heedful.inspection.report.blocks import Pictures, Words, sentence

    figures = patched_sketches(won_back(found, seen))
    drawn = [Pictures(figures, f"{sentence(WON)}.")] if figures else []
    return [Words(sentence(patched_told(seen))), *drawn, *(Words(sentence(text)) for text in not_patched(seen))]


def patched_told(seen: dict[str, Any]) -> str:
    first, second = (sum(seen["log_probability"][name]) for name in ("source", "other"))
    return (
        f"log p of the target: {first:.3f} after this source, {second:.3f} after {seen['other']!r}. Nats won back when one "
        "position takes the value it has with this source:"
    )


def not_patched(seen: dict[str, Any]) -> list[str]:
    left = ", ".join(seen["left_out"])
    return [f"not patched, for the sources differ in length: {left}"] if left else []


def side_of(place: str) -> str:
    """Whose positions it has: tokens of the source, tokens of the target, or the vectors that a decoder begins with."""
    if place.endswith(".thought"):
        return "beginning"
    return "source" if place.startswith("encoder") or place.endswith(".read") else "target"


def won_back(found: dict[str, Any], seen: dict[str, Any]) -> Won:
    sides = {"source": [*found["source_tokens"], found["end"]], "target": [*found["target_tokens"], found["end"]]}
    won: Won = {}
    for side in ("source", "beginning", "target"):
        ours = [one for one in seen["places"] if side_of(one["name"]) == side]
        labels = sides.get(side) or [f"vector {at}" for at in range(max((len(one["change"]) for one in ours), default=0))]
        ours = [one for one in ours if len(one["change"]) == len(labels)]
        if ours:
            won[side] = [one["name"] for one in ours], labels, [[sum(tokens) for tokens in one["change"]] for one in ours]
    return won


def unit_of(values: Sequence[Sequence[float]]) -> tuple[float, str]:
    """The largest unit of which there is at least one, so that a sure model's small numbers are not all 0.00."""
    largest = max(abs(value) for row in values for value in row)
    return next(((unit, name) for unit, name in UNITS.items() if largest >= unit), (1.0, "nats"))


def matrix(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    cells = [[f"{round(value, 2) + 0.0:.2f}" for value in row] for row in values]
    width = max(5, *(len(cell) for row in cells for cell in row))
    cells = [[cell.rjust(width) for cell in row] for row in cells]
    return table([("", *columns), *((name, *row) for name, row in zip(rows, cells, strict=True))])
