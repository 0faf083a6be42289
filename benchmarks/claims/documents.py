"""A claim about hierarchical attention: documents of five sentences, in which one key word decides the label.

key_word    the other words say nothing, so a model that is right has found the word, and its attention can be checked.
            Documents without a key word have a label of their own: without them, a model need not find the words of one label
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import heedful
from claims import SEEDS, Evidence, by_seed
from heedful.data.toys import TOPICS, key_document, sample

RECIPE = "toy-key-document"
KEYS = {word for words in TOPICS.values() for word in words}
LOOKED_FOR = "key word is the top word of the top sentence"
SHOWN = 200  # test documents whose attention is read


def key_word(folder: Path) -> Evidence:
    """The top word of the top sentence is the key word itself in 90% of the test documents that have one."""
    texts = [text for label, text in sample(key_document, "test", 2 * SHOWN) if label in TOPICS][:SHOWN]
    rows: list[dict[str, float]] = []
    for seed in SEEDS:
        run, options = folder / str(seed), ["training.threads=1", f"seed={seed}"]
        heedful.train(RECIPE, options, run=run, device="cpu", console=Console(quiet=True))
        classifier = heedful.Classifier.load(run)
        found = sum(top_word(classifier, text) in KEYS for text in texts)
        rows.append({"accuracy": classifier.evaluate("test")["accuracy"], LOOKED_FOR: found / len(texts)})
    return Evidence(by_seed(rows), all(row["accuracy"] >= 0.95 and row[LOOKED_FOR] >= 0.9 for row in rows))


def top_word(classifier: heedful.Classifier, text: str) -> str:
    """The word with the largest weight in the sentence with the largest weight."""
    sentences = heedful.inspection.document(classifier, text).sentences
    top = max(sentences, key=lambda sentence: sentence.weight or 0.0)
    return max(top.words, key=lambda word: word.weight).word.lower()
