"""heed demo: from nothing to a trained translator in a few minutes, on any laptop, with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import Device, Json, print_message, print_text, put

if TYPE_CHECKING:
    from heedful.build import Translator
    from heedful.tasks.evaluating import Examples

GOLD = 100  # validation sentences that choose the heads whose attention is drawn


def demo(
    run: Annotated[Path, typer.Option(help="Where the model is kept.")] = Path("runs/demo"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Train an English to Italian model on the built-in corpus, score it on unseen sentences, and look inside."""
    from heedful.build import examples_of, load
    from heedful.config import read_run
    from heedful.data.grammar import EXAMPLES
    from heedful.data.splits import splits_of
    from heedful.recipe_book import find_recipe
    from heedful.running import train_config
    from heedful.training.checkpoint import load_state

    config = read_run(find_recipe("demo")).config
    train_config(config, run, device=device)
    translator = load(run, device=device)
    seconds = load_state(run / "checkpoints" / f"step-{config.training.steps}")["journey"]["seconds"]
    test = examples_of(splits_of(config.data).test, config.data.max_ratio)
    result = translator.evaluate(test, ("exact_match", "bleu"))
    exact, bleu = result.figures["exact_match"], result.figures["bleu"]
    heads, error = best_heads(translator)
    if json:
        words = [{"source": one.source, "translation": text} for one, text in zip(EXAMPLES, told(translator), strict=True)]
        found = {"exact_match": exact, "bleu": bleu, "train_seconds": round(seconds, 1), "alignment_error_rate": error}
        put(found | {"examples": words, "run": str(run)})
        return
    print_message("")
    print_text(f"{len(test.sources)} unseen sentences: exact match {exact:.1f}%, BLEU {bleu:.1f}; trained in {seconds:.0f} s")
    for sentence in EXAMPLES:
        print_text(f"\n{portrait(translator, sentence.source, heads)}")
    print_text(
        f"\nDarker: looked at more when that word was said, by the {len(heads)} heads that align best (error rate {error:.1%})."
    )
    print_message(f"\nGo on:  echo '{one_more(translator, test)}' | .venv/bin/heed translate {run}")


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


def portrait(translator: Translator, source: str, heads: list[int]) -> str:
    """A sentence, its translation, and which words were looked at, as a picture."""
    from heedful.inspection.pictures import draw
    from heedful.studies.tracing import word_attention

    (target,) = translator.translate([source])
    picture = draw(word_attention(translator.system, source, target)[heads].mean(0), source.split(), target.split())
    return f"{source}  ->  {target}\n\n{picture}"


def best_heads(translator: Translator) -> tuple[list[int], float]:
    """The heads whose attention agrees best with the grammar's own alignments, and their error rate."""
    from heedful.data.grammar import generate
    from heedful.evaluation.word_alignment import Alignment
    from heedful.inspection.linking import choose_heads
    from heedful.studies.tracing import word_attention

    gold = list(generate("valid", GOLD))
    maps = [word_attention(translator.system, one.source, one.target) for one in gold]
    return choose_heads(maps, [Alignment(one.alignment, one.alignment) for one in gold])
