"""heed demo: from nothing to a trained translator in a few minutes, on any laptop, with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import Device, Json, print_json, print_message, print_text

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.build import Translator
    from heedful.data.gold import SentencePair
    from heedful.tasks.evaluate_translations import Examples

DRAWN = 2  # sentences whose attention is drawn
DRAWN_WORDS = range(4, 8)  # their length
DRAWN_FROM = 50  # sentences that they are chosen from


def demo(
    run: Annotated[Path, typer.Option(help="Where the model is kept.")] = Path("runs/demo"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Train an English to Italian model on the built-in corpus, score it on unseen sentences, and look inside."""
    print_message(
        "Training a small English to Italian model on the built-in corpus: about two minutes on two CPU cores.\n"
        f"The model is kept in {run}. Ctrl-C stops it; the same command continues.\n"
    )
    from heedful.build import examples_of, load
    from heedful.config import read_run
    from heedful.data.grammar import EXAMPLES
    from heedful.data.splits import splits_of
    from heedful.recipe_files import find_recipe
    from heedful.running import train_config
    from heedful.training.saved_state import load_train_state

    config = read_run(find_recipe("demo")).config
    train_config(config, run, device=device)
    translator = load(run, device=device)
    seconds = load_train_state(run / "checkpoints" / f"step-{config.training.steps}").seconds
    test = examples_of(splits_of(config.data).test, config.data.max_ratio)
    result = translator.evaluate(test, ("exact_match", "bleu"))
    exact, bleu = result.figures["exact_match"], result.figures["bleu"]
    error, pictures = aligned(translator)
    if json:
        words = [{"source": one.source, "translation": text} for one, text in zip(EXAMPLES, told(translator), strict=True)]
        found = {"exact_match": exact, "bleu": bleu, "train_seconds": round(seconds, 1), "alignment_error_rate": error}
        print_json(found | {"examples": words, "run": str(run)})
        return
    print_message("")
    print_text(f"{len(test.sources)} unseen sentences: exact match {exact:.1f}%, BLEU {bleu:.1f}; trained in {seconds:.0f} s")
    for sentence, text in zip(EXAMPLES, told(translator), strict=True):
        print_text(f"{sentence.source}  ->  {text}")
    print_text(
        f"\nWord alignment from cross-attention, as `heed align {run}` measures it:\n"
        f"heads and thresholds chosen on validation sentences, alignment error rate {error:.1%} on the unseen ones."
    )
    for picture in pictures:
        print_text(f"\n{picture}")
    if pictures:
        print_text(
            "\nDarker: higher attention weight from the target word (row) to the source word.\n"
            "Only sentences whose word alignment is correct are shown."
        )
    sentence_to_try = one_more(translator, test)
    print_message(f"\nTranslate:     echo '{sentence_to_try}' | .venv/bin/heed translate {run}")
    print_message(f"Inspect:       .venv/bin/heed inspect {run} '{sentence_to_try}' --html report.html")


def one_more(translator: Translator, test: Examples) -> str:
    """An unseen sentence of some length that the model gets right, and that a shell takes as it is."""
    plain = [pair for pair in zip(test.sources, test.references, strict=True) if "'" not in pair[0]]
    some = [pair for pair in plain if len(pair[0].split()) >= 5][:50] or plain
    answers = translator.translate([source for source, _ in some])
    right = [source for (source, wanted), answer in zip(some, answers, strict=True) if answer == wanted]
    return (right or [source for source, _ in some])[0]


def told(translator: Translator) -> list[str]:
    from heedful.data.grammar import EXAMPLES

    return translator.translate([sentence.source for sentence in EXAMPLES])


def aligned(translator: Translator) -> tuple[float, list[str]]:
    """The error rate of word alignments as `heed align` makes them: heads and thresholds are chosen on the validation
    sentences, the rate is of the test sentences. Besides, pictures of some test sentences whose links are all right."""
    from heedful.cli.align import links_by, sentences_of
    from heedful.evaluation.word_alignment import alignment_error_rate
    from heedful.studies.alignment import Models, maps_of

    _, gold, valid = sentences_of(translator, None, None, None)
    assert gold is not None, "the links of the built-in corpus are known"
    models = Models(translator.system)
    found, aligner = links_by(models, gold.pairs, None, valid)
    right = [
        (pair, line.sure)
        for pair, links, line in zip(gold.pairs, found, gold.alignments, strict=True)
        if links == line.sure and len(pair.source.split()) in DRAWN_WORDS
    ]
    answers = translator.translate([pair.source for pair, _ in right[:DRAWN_FROM]])
    exact = [one for one, answer in zip(right, answers, strict=False) if answer == one[0].target]
    (maps,) = maps_of(models, [pair for pair, _ in exact], aligner.heads, [aligner.moment])
    shown = [
        portrait(pair, weights.mean(0))
        for (pair, links), weights in zip(exact, maps, strict=True)
        if all((source, target) in links for target, source in enumerate(weights.mean(0).argmax(-1).tolist()))
    ]
    return alignment_error_rate(found, gold.alignments).value, shown[:DRAWN]


def portrait(pair: SentencePair, weights: Tensor) -> str:
    """A sentence, its translation, and the attention between their words (target words, source words), as a picture."""
    from heedful.inspection.text_heatmap import draw

    picture = draw(weights, pair.source.split(), pair.target.split())
    return f"{pair.source}  ->  {pair.target}\n\n{picture}"
