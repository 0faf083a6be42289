"""heed demo: train a small translation model in a few minutes on a laptop, without a download."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import COMMAND_LINE, Device, Json, print_json, print_message, print_text

if TYPE_CHECKING:
    from heedful.tasks.translation.data import Examples
    from heedful.tasks.translation.predictor import Translator

PICTURES = 2  # sentences whose attention is shown
PICTURE_WORDS = range(4, 8)  # their length in words
PICTURE_CANDIDATES = 50  # sentences to choose them from, at most `EXAMPLES` of the analysis


def demo(
    overrides: Annotated[list[str] | None, typer.Argument(help="Options to override: training.steps=200 …")] = None,
    run: Annotated[Path, typer.Option(help="Run folder of the model.")] = Path("runs/demo"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Train and evaluate a small English-Italian model on the built-in corpus, in a few minutes."""
    print_message(
        "Training a small English to Italian model on the built-in corpus: about two minutes on two CPU cores.\n"
        f"Run folder: {run}. Stop with Ctrl-C; the same command resumes.\n"
    )
    from heedful.data.grammar import EXAMPLES
    from heedful.data.splits import splits_of
    from heedful.runs.config import read_run
    from heedful.runs.recipes import find_recipe
    from heedful.runs.train import train_config
    from heedful.tasks.translation.data import examples_of
    from heedful.tasks.translation.predictor import Translator
    from heedful.training.saved_state import load_train_state

    config = read_run(find_recipe("demo"), overrides or [], origin=COMMAND_LINE).config
    train_config(config, run, device=device)
    translator = Translator.load(run, device=device)
    seconds = load_train_state(run / "checkpoints" / f"step-{config.training.steps}").seconds
    test = examples_of(splits_of(config.data).test, config.data.max_ratio)
    result = translator.evaluate(test, ("exact_match", "bleu"))
    exact, bleu = result.figures["exact_match"], result.figures["bleu"]
    error, pictures = evaluate_alignment(translator)
    if json:
        texts = translate_examples(translator)
        examples = [{"source": one.source, "translation": text} for one, text in zip(EXAMPLES, texts, strict=True)]
        figures = {"exact_match": exact, "bleu": bleu, "train_seconds": round(seconds, 1), "alignment_error_rate": error}
        print_json(figures | {"examples": examples, "run": str(run)})
        return
    print_message("")
    print_text(f"{len(test.sources)} unseen sentences: exact match {exact:.1f}%, BLEU {bleu:.1f}; trained in {seconds:.0f} s")
    for sentence, text in zip(EXAMPLES, translate_examples(translator), strict=True):
        print_text(f"{sentence.source}  ->  {text}")
    print_text(
        f"\nWord alignment from cross-attention, as `heed inspect alignment {run}` measures it:\n"
        f"heads and thresholds chosen on validation sentences, alignment error rate {error:.1%} on the unseen ones."
    )
    for picture in pictures:
        print_text(f"\n{picture}")
    if pictures:
        print_text(
            "\nDarker: higher attention weight from the target word (row) to the source word.\n"
            "Only sentences whose word alignment is correct are shown."
        )
    example = choose_example(translator, test)
    command = "heed" if which("heed") else ".venv/bin/heed"
    print_message(f"\nNext:\n  echo '{example}' | {command} translate {run}")
    print_message(f"  {command} inspect report {run} '{example}' --html report.html")


def choose_example(translator: Translator, test: Examples) -> str:
    """An unseen sentence of at least 5 words that the model translates correctly and that needs no escaping in a shell."""
    plain = [pair for pair in zip(test.sources, test.references, strict=True) if "'" not in pair[0]]
    some = [pair for pair in plain if len(pair[0].split()) >= 5][:50] or plain
    answers = translator.translate([source for source, _ in some])
    right = [source for (source, reference), answer in zip(some, answers, strict=True) if answer == reference]
    return (right or [source for source, _ in some])[0]


def translate_examples(translator: Translator) -> list[str]:
    from heedful.data.grammar import EXAMPLES

    return translator.translate([sentence.source for sentence in EXAMPLES])


def evaluate_alignment(translator: Translator) -> tuple[float, list[str]]:
    """The alignment error rate on the test sentences, with heads and thresholds selected on the validation sentences; and text
    heatmaps of test sentences whose links are all correct."""
    from heedful.inspection.analyses.alignment import alignment

    result = alignment(translator, bootstrap=0)
    assert result.scores is not None, "the built-in corpus has gold links"
    gold = {sample.source: sample.alignment.sure for sample in translator.sample_texts("test") if sample.alignment is not None}
    correct = [
        pair
        for pair, links in zip(result.pairs, result.links, strict=True)
        if links == gold[pair.source] and len(pair.source.split()) in PICTURE_WORDS
    ]
    answers = translator.translate([pair.source for pair in correct[:PICTURE_CANDIDATES]])
    exact = [pair for pair, answer in zip(correct, answers, strict=False) if answer == pair.target]
    shown = alignment(translator, exact, aligner=result.aligner)
    pictures = [
        shown.example_text(at)
        for at, (pair, weights) in enumerate(zip(exact, shown.weights, strict=True))
        if all((source, target) in gold[pair.source] for target, source in enumerate(weights.argmax(-1).tolist()))
    ]
    return result.scores.error_rate.value, pictures[:PICTURES]
