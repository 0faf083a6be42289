"""Whether the sentences that hierarchical attention weights most determine the label.

    HEED_DATA=/where/corpora/are python benchmarks/document_sentences.py RUN      -> benchmarks/results/document_sentences.json

For 500 test documents of at least three sentences: the probability of the predicted label without the sentence of the largest
weight, and without one of the others drawn at random with a fixed seed. Counted is how often the first falls further.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from peers.machine import machine_info

import heedful
from heedful.inspection.analyses.document import DocumentResult

SEED, SHOWN = 7, 5


def without(sentences: list[str], left_out: int) -> str:
    return " ".join(sentence for at, sentence in enumerate(sentences) if at != left_out)


def measure(classifier: heedful.Classifier, texts: list[str]) -> list[dict[str, Any]]:
    """The probability of the predicted label of each text as it is, and without one sentence."""
    draw, rows = random.Random(SEED), []
    for text in texts:
        result: DocumentResult = heedful.inspection.document(classifier, text)
        sentences = [" ".join(word.word for word in sentence.words) for sentence in result.sentences]
        weights = [sentence.weight or 0.0 for sentence in result.sentences]
        top = max(range(len(weights)), key=lambda at: weights[at])
        other = draw.choice([at for at in range(len(weights)) if at != top])
        shorter = classifier.predict_proba([without(sentences, top), without(sentences, other)])
        without_top, without_other = (one[result.predicted] for one in shorter)
        rows.append(
            {
                "label": result.predicted,
                "probability": result.probability,
                "without_top": without_top,
                "without_random": without_other,
                "sentences": len(sentences),
                "top_sentence": sentences[top],
                "its_weight": weights[top],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "document_sentences.json")
    options = parser.parse_args()
    classifier = heedful.Classifier.load(options.run, device="cpu")
    samples = (sample.target or "" for sample in classifier.sample_texts("test"))
    texts: list[str] = []
    for text in samples:
        if len(heedful.inspection.document(classifier, text).sentences) >= 3:
            texts.append(text)
        if len(texts) == options.documents:
            break
    rows = measure(classifier, texts)
    further = sum(row["without_top"] < row["without_random"] for row in rows) / len(rows)
    fall = {name: sum(row["probability"] - row[name] for row in rows) / len(rows) for name in ("without_top", "without_random")}
    result = machine_info() | {
        "run": classifier.run.model.model_dump(mode="json"),
        "accuracy": classifier.evaluate("test")["accuracy"],
        "documents": len(rows),
        "top_falls_further": round(further, 4),
        "mean_fall": {name: round(value, 4) for name, value in fall.items()},
        "shown": rows[:SHOWN],
    }
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(rows)} documents: p falls further without the top sentence than without a random one in {further:.1%}; {fall}")
    for row in rows[:SHOWN]:
        after = f"{row['without_top']:.3f}, without a random sentence {row['without_random']:.3f}"
        print(f"{row['label']} p {row['probability']:.3f} -> {after}: {row['top_sentence'][:80]}")


if __name__ == "__main__":
    main()
