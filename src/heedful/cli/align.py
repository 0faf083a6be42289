"""heed align."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedful.bounds import MAX_RESAMPLES, MAX_SMALL
from heedful.cli.output import Checkpoint, Device, Json, finite, print_json, print_message, print_text, table
from heedful.cli.translate import given
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.build import Translator
    from heedful.data.gold import Gold, Words
    from heedful.evaluation.word_alignment import Link
    from heedful.studies.alignment import Aligner, AlignmentHead, Models

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Method = Literal["soft", "grow-diag-final-and", "grow-diag", "intersection", "union"]


def align(
    context: typer.Context,
    run: Run,
    source: Annotated[Path | None, typer.Option(help="The sources, one a line; the run's own test data unless given.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the links here, one line a pair: 0-0 1-2.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold links, i-j sure and i?j possible: tell the error rate.")] = None,
    choose_on: Annotated[
        tuple[Path, Path, Path] | None,
        typer.Option(help="Other sources, targets and gold links, on which heads and thresholds are chosen."),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Of the decoder, from 0; all unless said.")] = None,
    heads: Annotated[str | None, typer.Option(help="Of that layer, from 0: 3,5. Of several: 0.3,1.5,back.0.2.")] = None,
    moment: Annotated[Literal["said", "fed"], typer.Option(help="A target word's look: as it is said, or once fed.")] = "said",
    row: Annotated[
        float, typer.Option(min=0, max=1, callback=finite, help="Minimum share of the target word's largest weight.")
    ] = 1.0,
    column: Annotated[float, typer.Option(min=0, max=1, callback=finite, help="And this share of its source word's.")] = 0.0,
    cover: Annotated[Literal["none", "target", "both"], typer.Option(help="Whose words always have a link.")] = "none",
    reverse: Annotated[Path | None, typer.Option(help="A run that translates back, to align from both sides.")] = None,
    symmetrize: Annotated[
        Method | None, typer.Option(help="With --reverse: heads of both (soft), or a rule for links.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MAX_RESAMPLES, help="Resamples for the 95% interval; 0: no interval.")
    ] = 1000,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Align words by attention: links in the Pharaoh format and, where gold links are known, their error rate."""
    from heedful.build import load_translator
    from heedful.data.gold import read_gold
    from heedful.data.input_lines import refuse_too_long, refuse_two_readers
    from heedful.errors import ConfigError
    from heedful.evaluation.metrics import FEWEST
    from heedful.inspection.alignment_links import LinkRule
    from heedful.studies.alignment import Aligner, Models, as_pharaoh

    if symmetrize is not None and reverse is None:
        raise ConfigError(f"--symmetrize {symmetrize} joins two runs and has no effect without --reverse")
    refuse_two_readers([source, target, gold, *(choose_on or ())])
    if (source is None) != (target is None):
        raise ConfigError("--source and --target belong together; give both or neither")
    if gold is not None and source is None:
        raise ConfigError("--gold needs --source and --target, whose words it links")
    if bootstrap and bootstrap < FEWEST:
        raise ConfigError(f"--bootstrap: given {bootstrap}, expected 0 (no interval) or at least {FEWEST} resamples")
    translator = load_translator(run, checkpoint, device)
    back = None if reverse is None else load_translator(reverse, checkpoint, device)
    pairs, known, valid = sentences_of(translator, source, target, gold)
    valid = read_gold(*choose_on) if choose_on else valid
    if known is None and given(context, "bootstrap"):
        raise ConfigError("--bootstrap is for the error rate, which needs --gold", hint="leave it out, or give --gold")
    for number, pair in enumerate(pairs, start=1):
        for text in pair:
            refuse_too_long(text, f"pair {number}")
    typed = any(given(context, name) for name in ("layer", "heads", "moment", "row", "column", "cover"))
    if typed and choose_on:
        raise ConfigError("--choose-on chooses layer, heads, moment, row, column and cover; give it or them, not both")
    rule = None if symmetrize == "soft" else symmetrize  # None: not links are joined, but heads
    joined = Models(translator.system, back.system if back is not None and rule is None else None)
    by_hand = Aligner(heads_named(joined, layer, heads), moment, LinkRule(row, column, cover)) if typed else None
    with output_file(out or Path(os.devnull)) as file:  # before the work is done, not after it
        found, aligner = links_by(
            joined, pairs, by_hand or (usual_aligner(translator, joined) if valid is None else None), valid
        )
        told: dict[str, Any] = {"pairs": len(pairs), "aligner": plain_aligner(aligner)}
        if back is not None and rule is not None:
            found, told["reverse"] = from_both_sides(found, back, pairs, valid, rule)
        file.writelines(f"{as_pharaoh(links)}\n" for links in found)
    told["without_links"] = sum(not links for links in found)
    if known is not None:
        told |= judged(translator, (found, known), None if typed else valid, bootstrap)
    if out is None and known is None and not json:
        for links in found:
            print_text(as_pharaoh(links))
    elif json:
        print_json(told if known is not None or out is not None else told | {"links": [sorted(links) for links in found]})
    else:
        print_text(readable(told))


def sentences_of(
    translator: Translator, source: Path | None, target: Path | None, gold: Path | None
) -> tuple[list[Words], Gold | None, Gold | None]:
    """The pairs to align, with their gold links where they have some, and others with gold links to choose on: of the
    given files, or of the run's own test data, where the built-in corpus knows its links."""
    from heedful.build import examples_of
    from heedful.data.gold import Words, builtin_gold, read_gold, read_words
    from heedful.data.splits import splits_of
    from heedful.errors import ConfigError

    if source is not None and target is not None:
        if gold is None:
            return read_words(source, target), None, None
        known = read_gold(source, target, gold)
        return known.pairs, known, None
    splits = splits_of(translator.run.data)
    if not splits.test:
        raise ConfigError("the run has no test data", hint="give --source and --target")
    if any(not corpus.builtin for corpus in (*splits.test, *splits.valid)):
        examples = examples_of(splits.test, translator.run.data.max_ratio)
        return [Words(*pair) for pair in zip(*examples, strict=True)], None, None
    test, valid = (builtin_gold(one[0].split or "", one[0].count or 0, one[0].seed or 0) for one in (splits.test, splits.valid))
    return test.pairs, test, valid


def heads_named(models: Models, layer: int | None, heads: str | None) -> tuple[AlignmentHead, ...]:
    """Heads by layer and number; whoever is not there is an error."""
    from heedful.errors import ConfigError
    from heedful.studies.alignment import heads_of

    known = {str(head): head for head in heads_of(models)}
    if heads is None:
        chosen = tuple(head for head in known.values() if layer in (None, head.layer))
        if not chosen:
            there = ", ".join(map(str, dict.fromkeys(head.layer for head in known.values())))
            raise ConfigError(f"--layer: given {layer}; this model looks at its source in layers: {there}")
        return chosen
    names = [name if layer is None else f"{layer}.{name}" for name in heads.split(",")]
    strangers = [name for name in names if name not in known]
    if strangers:
        expected = "3,5 with --layer or 0.3,1.5 without it"
        raise ConfigError(f"--heads: given {heads!r}, expected {expected}; there is no {strangers[0]}, but: {', '.join(known)}")
    return tuple(known[name] for name in names)


def links_by(
    models: Models, pairs: list[Words], aligner: Aligner | None, valid: Gold | None
) -> tuple[list[set[Link]], Aligner]:
    """By the given aligner, or by the one that the validation pairs choose."""
    from heedful.studies.alignment import align, choose_aligner, collect_head_weights

    if aligner is None:
        assert valid is not None, "there is something to choose on"
        aligner, error = choose_aligner(collect_head_weights(models, valid.pairs), valid.alignments)
        print_message(f"chosen on {len(valid.pairs):,} other pairs, error rate there {error:.1%}: {described(aligner)}")
    return list(align(models, pairs, aligner)), aligner


def usual_aligner(translator: Translator, models: Models) -> Aligner:
    """Of a guided run the guided heads, which share a word's look among its links; else the mean of all heads."""
    from heedful.inspection.alignment_links import LinkRule
    from heedful.studies.alignment import Aligner, AlignmentHead, heads_of
    from heedful.tasks.guided_alignment import choose_layer

    known = heads_of(models)
    task: Any = translator.run.task  # a translator's is of translation
    if task.guided_alignment:
        layer = choose_layer(sorted({head.layer for head in known if not head.back}), task.guided_layer)
        found = Aligner(tuple(AlignmentHead(layer, number) for number in task.guided_heads), linking=LinkRule(row=0.3))
    else:
        found = Aligner(tuple(known))
    print_message(f"not chosen on gold links, but as usual: {described(found)}")
    return found


def from_both_sides(
    found: list[set[Link]], back: Translator, pairs: list[Words], valid: Gold | None, method: str
) -> tuple[list[set[Link]], dict[str, Any]]:
    """Our links and those of a model that translates back, made one."""
    from heedful.evaluation.symmetrization import SYMMETRIZATIONS
    from heedful.studies.alignment import Models

    models = Models(back.system)
    usual, turned = (usual_aligner(back, models), None) if valid is None else (None, valid.swapped)
    theirs, aligner = links_by(models, [pair.swapped for pair in pairs], usual, turned)
    swapped = [{(j, i) for i, j in links} for links in theirs]
    return list(map(SYMMETRIZATIONS[method], found, swapped)), plain_aligner(aligner) | {"symmetrized": method}


def judged(translator: Translator, found: tuple[list[set[Link]], Gold], valid: Gold | None, bootstrap: int) -> dict[str, Any]:
    """The error rate of the links, with precision and recall, and a table by layer."""
    from dataclasses import asdict

    from heedful.evaluation.word_alignment import alignment_error_rate, precision_and_recall
    from heedful.studies.alignment import Models, collect_head_weights
    from heedful.studies.alignment_report import Judge, by_layer

    links, gold = found
    rate = alignment_error_rate(links, gold.alignments, bootstrap=bootstrap)
    precision, recall = precision_and_recall(links, gold.alignments)
    alone = Models(translator.system)
    test = Judge(collect_head_weights(alone, gold.pairs), gold.alignments)
    other = None if valid is None else Judge(collect_head_weights(alone, valid.pairs), valid.alignments)
    layers = [
        {"layer": one.layer, "heads": one.heads, "said": one.said.value, "fed": one.fed.value}
        | ({} if one.chosen is None or one.score is None else {"chosen": one.score.value, "by": plain_aligner(one.chosen)})
        for one in by_layer(test, other)
    ]
    return {"aer": asdict(rate), "precision": precision, "recall": recall, "layers": layers}


def plain_aligner(aligner: Aligner) -> dict[str, Any]:
    return {"heads": list(map(str, aligner.heads)), "moment": aligner.moment, **aligner.linking._asdict()}


def described(aligner: Aligner) -> str:
    """As options that would give the same."""
    one = plain_aligner(aligner)
    options = f"--moment {one['moment']} --row {one['row']} --column {one['column']} --cover {one['cover']}"
    return f"--heads {','.join(one['heads'])} {options}"


def readable(told: dict[str, Any]) -> str:
    text = f"{told['pairs']:,} pairs, {told['without_links']:,} without links"
    if "aer" not in told:
        return text
    rate = told["aer"]
    interval = "" if rate["low"] is None else f", 95% interval {rate['low']:.1%} to {rate['high']:.1%}"
    text += (
        f"\nalignment error rate {rate['value']:.1%}{interval}; precision {told['precision']:.1%}, recall {told['recall']:.1%}"
    )
    rows = [("layer", "heads", "said", "fed", "with thresholds chosen on validation")]
    for one in told["layers"]:
        chosen = f"{one['chosen']:.1%}" if "chosen" in one else "-"
        rows.append((str(one["layer"]), str(one["heads"]), f"{one['said']:.1%}", f"{one['fed']:.1%}", chosen))
    return f"{text}\n\n{table(rows)}"
