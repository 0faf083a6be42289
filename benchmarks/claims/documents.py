"""A claim about hierarchical attention: documents of five sentences, in which one key word decides the label.

key_word    the other words say nothing, so a model that is right has found the word, and its attention can be checked.
            Documents without a key word have a label of their own: without them, a model need not find the words of one label
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import heedful
from claims import Evidence
from heedful.data.toys import TOPICS, key_document, sample

RECIPE = "toy-key-document"
KEYS = {word for words in TOPICS.values() for word in words}
SHOWN = 200  # test documents whose attention is read


def key_word(folder: Path) -> Evidence:
    """The top word of the top sentence is the key word itself in 90% of the test documents that have one."""
    heedful.train(RECIPE, ["training.threads=1"], run=folder / "run", device="cpu", console=Console(quiet=True))
    classifier = heedful.Classifier.load(folder / "run")
    accuracy, found = classifier.evaluate("test")["accuracy"], 0
    texts = [text for label, text in sample(key_document, "test", 2 * SHOWN) if label in TOPICS][:SHOWN]
    for text in texts:
        sentences = heedful.inspection.document(classifier, text).sentences
        top = max(sentences, key=lambda sentence: sentence.weight or 0.0)
        found += max(top.words, key=lambda word: word.weight).word.lower() in KEYS
    share = found / len(texts)
    figures = {"accuracy": f"{accuracy:.1%}", "key word is the top word of the top sentence": f"{share:.1%}"}
    return Evidence(figures, accuracy >= 0.95 and share >= 0.9)
