"""heed align."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedful.cli.output import Checkpoint, Device, Json, check_finite, print_json, print_message, print_text, table
from heedful.cli.task_options import is_given
from heedful.config.bounds import MAX_RESAMPLES, MAX_SMALL
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.data.gold import Gold, SentencePair
    from heedful.evaluation.word_alignment import Link
    from heedful.inspection.measures.alignment_heads import Aligner, AlignmentHead, Models
    from heedful.tasks.translation.predictor import Translator

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Method = Literal["soft", "grow-diag-final-and", "grow-diag", "intersection", "union"]


def align(
    context: typer.Context,
    run: Run,
    source: Annotated[Path | None, typer.Option(help="Source sentences, one per line. Default: the run's test data.")] = None,
    target: Annotated[Path | None, typer.Option(help="Translations of --source, one per line.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write links to this file, one line per pair: 0-0 1-2.")] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Gold links, i-j sure and i?j possible: report the alignment error rate.")
    ] = None,
    choose_on: Annotated[
        tuple[Path, Path, Path] | None,
        typer.Option(help="Source, target and gold files on which to select heads and thresholds."),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Decoder layer, from 0. Default: all.")] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads of --layer, from 0: 3,5; of several layers: 0.3,1.5,back.0.2.")
    ] = None,
    moment: Annotated[
        Literal["predict", "consume"],
        typer.Option(help="Attention from the step that predicts the target word, or that consumes it."),
    ] = "predict",
    row: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=check_finite,
            help="Minimum weight of a link, as a share of the target word's largest weight.",
        ),
    ] = 1.0,
    column: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=check_finite,
            help="Minimum weight of a link, as a share of the source word's largest weight.",
        ),
    ] = 0.0,
    cover: Annotated[
        Literal["none", "target", "both"],
        typer.Option(help="SentencePair that get at least one link: none, all target words, or all words."),
    ] = "none",
    reverse: Annotated[Path | None, typer.Option(help="Run of the opposite direction, to align in both directions.")] = None,
    symmetrize: Annotated[
        Method | None, typer.Option(help="With --reverse: average heads of both runs (soft), or combine their links.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MAX_RESAMPLES, help="Bootstrap resamples for the 95% interval; 0: no interval.")
    ] = 1000,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Align the words of sentence pairs by attention.

    Prints links in the Pharaoh format or, given gold links, the alignment error rate."""
    from heedful.data.gold import read_gold
    from heedful.data.input_lines import refuse_too_long, refuse_two_readers
    from heedful.errors import ConfigError
    from heedful.evaluation.metrics import MIN_RESAMPLES
    from heedful.inspection.measures.alignment_heads import Aligner, Models, as_pharaoh
    from heedful.inspection.measures.alignment_links import LinkRule
    from heedful.tasks.translation.predictor import Translator

    if symmetrize is not None and reverse is None:
        raise ConfigError(f"--symmetrize {symmetrize} combines two runs and has no effect without --reverse")
    refuse_two_readers([source, target, gold, *(choose_on or ())])
    if (source is None) != (target is None):
        raise ConfigError("--source and --target require each other", hint="give both, or neither for the run's test data")
    if gold is not None and source is None:
        raise ConfigError("--gold requires --source and --target")
    if bootstrap and bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {bootstrap}, expected 0 (no interval) or at least {MIN_RESAMPLES} resamples")
    translator = Translator.load(run, checkpoint, device)
    back = None if reverse is None else Translator.load(reverse, checkpoint, device)
    pairs, gold_links, valid = read_pairs(translator, source, target, gold)
    valid = read_gold(*choose_on) if choose_on else valid
    if gold_links is None and is_given(context, "bootstrap"):
        raise ConfigError("--bootstrap has no effect without gold links", hint="remove --bootstrap, or add --gold")
    for number, pair in enumerate(pairs, start=1):
        for text in pair:
            refuse_too_long(text, f"pair {number}")
    is_chosen = any(is_given(context, name) for name in ("layer", "heads", "moment", "row", "column", "cover"))
    if is_chosen and choose_on:
        raise ConfigError(
            "--choose-on selects layer, heads, moment, row, column and cover, and cannot be combined with them",
            hint="remove --choose-on or the other options",
        )
    rule = None if symmetrize == "soft" else symmetrize  # None: heads are averaged, not links combined
    joined = Models(translator.system, back.system if back is not None and rule is None else None)
    explicit = Aligner(select_heads(joined, layer, heads), moment, LinkRule(row, column, cover)) if is_chosen else None
    with output_file(out or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        aligner = explicit or (default_aligner(translator, joined) if valid is None else None)
        links, aligner = compute_links(joined, pairs, aligner, valid)
        result: dict[str, Any] = {"pairs": len(pairs), "aligner": aligner_to_dict(aligner)}
        if back is not None and rule is not None:
            links, result["reverse"] = symmetrize_links(links, back, pairs, valid, rule)
        file.writelines(f"{as_pharaoh(line)}\n" for line in links)
    result["without_links"] = sum(not line for line in links)
    if gold_links is not None:
        result |= score_links(translator, (links, gold_links), None if is_chosen else valid, bootstrap)
    if out is None and gold_links is None and not json:
        for line in links:
            print_text(as_pharaoh(line))
    elif json:
        has_links = gold_links is None and out is None
        print_json(result | {"links": [sorted(line) for line in links]} if has_links else result)
    else:
        print_text(format_result(result))


def read_pairs(
    translator: Translator, source: Path | None, target: Path | None, gold: Path | None
) -> tuple[list[SentencePair], Gold | None, Gold | None]:
    """The pairs to align, their gold links, and validation pairs with gold links to select on; from the given files, or from
    the run's data, of which only the built-in corpus has gold links."""
    from heedful.data.gold import SentencePair, builtin_gold, read_gold, read_words
    from heedful.data.splits import splits_of
    from heedful.errors import ConfigError
    from heedful.tasks.translation.data import examples_of

    if source is not None and target is not None:
        if gold is None:
            return read_words(source, target), None, None
        links = read_gold(source, target, gold)
        return links.pairs, links, None
    splits = splits_of(translator.run.data)
    if not splits.test:
        raise ConfigError("the run has no test data", hint="add --source and --target")
    if any(not corpus.builtin for corpus in (*splits.test, *splits.valid)):
        examples = examples_of(splits.test, translator.run.data.max_ratio)
        return [SentencePair(*pair) for pair in zip(*examples, strict=True)], None, None
    corpora = splits.test[0], splits.valid[0]
    test, valid = (builtin_gold(one.split or "", one.count or 0, one.seed or 0) for one in corpora)
    return test.pairs, test, valid


def select_heads(models: Models, layer: int | None, heads: str | None) -> tuple[AlignmentHead, ...]:
    """Heads by layer and number; an unknown head is an error."""
    from heedful.errors import ConfigError
    from heedful.inspection.measures.alignment_heads import heads_of

    known = {str(head): head for head in heads_of(models)}
    if heads is None:
        chosen = tuple(head for head in known.values() if layer in (None, head.layer))
        if not chosen:
            layers = ", ".join(map(str, dict.fromkeys(head.layer for head in known.values())))
            raise ConfigError(f"--layer: given {layer}, expected a layer with cross-attention: {layers}")
        return chosen
    names = [name if layer is None else f"{layer}.{name}" for name in heads.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        expected = "3,5 with --layer or 0.3,1.5 without it"
        raise ConfigError(
            f"--heads: given {heads!r}, expected {expected}; unknown head {unknown[0]}, expected any of: {', '.join(known)}"
        )
    return tuple(known[name] for name in names)


def compute_links(
    models: Models, pairs: list[SentencePair], aligner: Aligner | None, valid: Gold | None
) -> tuple[list[set[Link]], Aligner]:
    """The links of the given aligner, or of the one with the lowest error on the validation pairs."""
    from heedful.inspection.measures.alignment_heads import align, choose_aligner, collect_head_weights

    if aligner is None:
        assert valid is not None, "without an aligner there are pairs to select one on"
        aligner, error = choose_aligner(collect_head_weights(models, valid.pairs), valid.alignments)
        print_message(f"selected on {len(valid.pairs):,} other pairs, error rate {error:.1%}: {format_options(aligner)}")
    return list(align(models, pairs, aligner)), aligner


def default_aligner(translator: Translator, models: Models) -> Aligner:
    """The guided heads of a guided run, with a threshold for several links per word; otherwise the mean of all heads."""
    from heedful.inspection.measures.alignment_heads import Aligner, AlignmentHead, heads_of
    from heedful.inspection.measures.alignment_links import LinkRule
    from heedful.tasks.translation.guided_alignment import choose_layer

    known = heads_of(models)
    task: Any = translator.run.task  # the task of a translator is translation
    if task.guided_alignment:
        layer = choose_layer(sorted({head.layer for head in known if not head.back}), task.guided_layer)
        aligner = Aligner(tuple(AlignmentHead(layer, number) for number in task.guided_heads), rule=LinkRule(row=0.3))
    else:
        aligner = Aligner(tuple(known))
    print_message(f"default aligner, not selected on gold links: {format_options(aligner)}")
    return aligner


def symmetrize_links(
    links: list[set[Link]], back: Translator, pairs: list[SentencePair], valid: Gold | None, method: str
) -> tuple[list[set[Link]], dict[str, Any]]:
    """Combine the links with those of a model of the opposite direction."""
    from heedful.evaluation.symmetrization import SYMMETRIZATIONS
    from heedful.inspection.measures.alignment_heads import Models

    models = Models(back.system)
    default, swapped_valid = (default_aligner(back, models), None) if valid is None else (None, valid.swapped)
    reverse, aligner = compute_links(models, [pair.swapped for pair in pairs], default, swapped_valid)
    swapped = [{(j, i) for i, j in line} for line in reverse]
    return list(map(SYMMETRIZATIONS[method], links, swapped)), aligner_to_dict(aligner) | {"symmetrized": method}


def score_links(
    translator: Translator, aligned: tuple[list[set[Link]], Gold], valid: Gold | None, bootstrap: int
) -> dict[str, Any]:
    """The error rate, precision and recall of links against gold links, and a table by layer."""
    from dataclasses import asdict

    from heedful.evaluation.word_alignment import alignment_error_rate, precision_and_recall
    from heedful.inspection.measures.alignment_heads import Models, collect_head_weights
    from heedful.inspection.measures.alignment_scores import GoldSet, by_layer

    links, gold = aligned
    rate = alignment_error_rate(links, gold.alignments, bootstrap=bootstrap)
    precision, recall = precision_and_recall(links, gold.alignments)
    alone = Models(translator.system)
    test = GoldSet(collect_head_weights(alone, gold.pairs), gold.alignments)
    other = None if valid is None else GoldSet(collect_head_weights(alone, valid.pairs), valid.alignments)
    layers = [
        {"layer": one.layer, "heads": one.heads, "predict": one.predict.value, "consume": one.consume.value}
        | ({} if one.chosen is None or one.score is None else {"chosen": one.score.value, "by": aligner_to_dict(one.chosen)})
        for one in by_layer(test, other)
    ]
    return {"aer": asdict(rate), "precision": precision, "recall": recall, "layers": layers}


def aligner_to_dict(aligner: Aligner) -> dict[str, Any]:
    return {"heads": list(map(str, aligner.heads)), "moment": aligner.moment, **aligner.rule._asdict()}


def format_options(aligner: Aligner) -> str:
    """The command-line options that select this aligner."""
    one = aligner_to_dict(aligner)
    options = f"--moment {one['moment']} --row {one['row']} --column {one['column']} --cover {one['cover']}"
    return f"--heads {','.join(one['heads'])} {options}"


def format_result(result: dict[str, Any]) -> str:
    text = f"{result['pairs']:,} pairs, {result['without_links']:,} without links"
    if "aer" not in result:
        return text
    rate = result["aer"]
    interval = "" if rate["low"] is None else f", 95% interval {rate['low']:.1%} to {rate['high']:.1%}"
    text += f"\nalignment error rate {rate['value']:.1%}{interval}"
    text += f"; precision {result['precision']:.1%}, recall {result['recall']:.1%}"
    rows = [("layer", "heads", "predict", "consume", "thresholds selected on validation")]
    for one in result["layers"]:
        chosen = f"{one['chosen']:.1%}" if "chosen" in one else "-"
        rows.append((str(one["layer"]), str(one["heads"]), f"{one['predict']:.1%}", f"{one['consume']:.1%}", chosen))
    return f"{text}\n\n{table(rows)}"
