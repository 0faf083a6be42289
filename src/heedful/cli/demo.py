"""heed demo: from nothing to a trained translator in a few minutes, on any laptop, with no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import Device, Json, put, talk

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.build import Translator

GOLD = 200  # validation sentences that choose the layer whose attention is drawn


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
    layer, error = best_layer(translator)
    if json:
        words = [{"source": one.source, "translation": text} for one, text in zip(EXAMPLES, told(translator), strict=True)]
        found = {"exact_match": exact, "bleu": bleu, "train_seconds": round(seconds, 1), "alignment_error_rate": error}
        put(found | {"examples": words, "run": str(run)})
        return
    talk("")
    print(f"{len(test.sources)} unseen sentences: exact match {exact:.1f}%, BLEU {bleu:.1f}; trained in {seconds:.0f} s")
    for sentence in EXAMPLES:
        print(f"\n{portrait(translator, sentence.source, layer)}")
    print(f"\nDarker: looked at more when that word was said (decoder layer {layer + 1}; alignment error rate {error:.1%}).")
    talk(f"\nGo on:  echo 'the cat sees the old house' | .venv/bin/heed translate {run}")


def told(translator: Translator) -> list[str]:
    from heedful.data.grammar import EXAMPLES

    return translator.translate([sentence.source for sentence in EXAMPLES])


def portrait(translator: Translator, source: str, layer: int) -> str:
    """A sentence, its translation, and which words were looked at, as a picture."""
    from heedful.inspection.pictures import draw

    (target,) = translator.translate([source])
    return (
        f"{source}  ->  {target}\n\n{draw(word_attention(translator, source, target, layer), source.split(), target.split())}"
    )


def word_attention(translator: Translator, source: str, target: str, layer: int) -> Tensor:
    """(target words, source words)."""
    from heedful.inspection.alignment import attention_between, between_words
    from heedful.tasks.translating import collate_one

    system = translator.system
    source_ids, target_ids = system.source_tokenizer.encode(source), system.target_tokenizer.encode(target)
    weights = attention_between(translator.model, collate_one(system, source_ids, target_ids), layer)
    weights = weights[: len(target_ids), : len(source_ids)]
    return between_words(weights, system.source_tokenizer.word_of(source_ids), system.target_tokenizer.word_of(target_ids))


def best_layer(translator: Translator) -> tuple[int, float]:
    """The decoder layer whose attention agrees best with the grammar's own alignments, and its error rate."""
    from heedful.data.grammar import generate
    from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
    from heedful.inspection.alignment import cross_maps, links
    from heedful.tasks.translating import collate_one

    gold = list(generate("valid", GOLD))
    references = [Alignment(one.alignment, one.alignment) for one in gold]
    ids = translator.system.source_tokenizer.encode(gold[0].source), translator.system.target_tokenizer.encode(gold[0].target)
    layers = len(cross_maps(translator.model, *collate_one(translator.system, *ids)))
    rates = []
    for layer in range(layers):
        found = [links(word_attention(translator, one.source, one.target, layer)) for one in gold]
        rates.append((alignment_error_rate(found, references).value, layer))
    rate, layer = min(rates)
    return layer, rate
