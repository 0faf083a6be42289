"""Claims about language models: pre-training helps with later tasks.

    gpt1             a pre-trained model needs few labels (Radford et al., 2018)
    gpt2-zero-shot   a language model answers prompts without labels (Radford et al., 2019)
    characters       a small character model beats an n-gram model and generates words

All are trained with smaller versions of this project's recipes.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from rich.console import Console

import heedful
from claims import Evidence
from claims.texts import KINDS, NGram, known_words, labeled, lexicon, questions, sentence, words_of, write_lines
from heedful.data.corpus_text import passages, read_passage

SEEDS = (1, 2, 3)
TEXT, LABELS, TESTED = 20_000, 100, 1000  # sentences
SMALL = ["model.dim=64", "model.layers=2", "model.heads=4", "model.max_positions=64"]
ORDER = 2  # history of the n-gram, in characters
CHARACTER_STEPS = 2200


def train(recipe: str, overrides: list[str], run: Path, *, seed: int, steps: int) -> Any:
    """Train, and load the run with its best validation checkpoint."""
    often = [f"training.steps={steps}", f"training.save_every={steps}", f"seed={seed}", "training.threads=1"]
    heedful.train(recipe, [*overrides, *often], run=run, device="cpu", console=Console(quiet=True))
    return heedful.load(run)


def pretrain(folder: Path, *, seed: int, stated: float, steps: int = 500, rate: float = 2e-3) -> Any:
    """Pre-train a tiny GPT-1 on sentences generated from templates."""
    known, draw = lexicon(seed, stated=stated), random.Random(seed)
    write_lines((sentence(known, draw) for _ in range(TEXT)), folder / "text" / "train.txt")
    write_lines((sentence(known, draw) for _ in range(TEXT // 20)), folder / "text" / "valid.txt")
    data = f'data={{form="text", folder="{folder / "text"}", block=64, batch=32}}'
    words = 'tokenizer={kind="spaces", vocab=1000, min_frequency=1}'
    pace = [f"training.schedule.learning_rate={rate}", "training.schedule.warmup=50", f"training.validate_every={steps}"]
    return train("gpt1-reviews", [data, words, *SMALL, *pace, "task.samples=0"], folder / "run", seed=seed, steps=steps)


def fine_tune(folder: Path, first: Path, *, seed: int) -> float:
    """The test accuracy after fine-tuning on a hundred labels."""
    rows = labeled(lexicon(seed), LABELS + TESTED // 5 + TESTED, random.Random(100 + seed))
    sizes = {"train": LABELS, "valid": TESTED // 5, "test": TESTED}
    for split, count in sizes.items():
        write_lines((f"{kind}\t{text}" for kind, text in rows[:count]), folder / "labels" / f"{split}.tsv")
        rows = rows[count:]
    data = [f"data.folder={folder / 'labels'}", "data.max_length=32", f"task.labels=[{', '.join(map(repr, KINDS))}]"]
    pace = ["training.schedule.learning_rate=1e-3", "training.validate_every=50", f"training.init={first}"]
    words = 'tokenizer={kind="spaces", vocab=1000, min_frequency=1}'
    run = train("sst2-gpt1", [*data, *pace, *SMALL, words], folder / "run", seed=seed, steps=300)
    accuracy: float = run.evaluate("test")["accuracy"]
    return accuracy


def gpt1(folder: Path) -> Evidence:
    """Both have the same vocabulary; the model from scratch is not pre-trained (one step at a learning rate of almost 0)."""
    shares: dict[str, list[float]] = {"pre-trained": [], "from scratch": []}
    for seed in SEEDS:
        for name, pace in {"pre-trained": {}, "from scratch": {"steps": 1, "rate": 1e-12}}.items():
            run_folder = folder / f"{name.replace(' ', '-')}-{seed}"
            pretrain(run_folder / "read", seed=seed, stated=0.0, **pace)  # type: ignore[arg-type]
            shares[name].append(fine_tune(run_folder / "tuned", run_folder / "read" / "run", seed=seed))
    means = {name: sum(results) / len(results) for name, results in shares.items()}
    figures = {
        name: f"{means[name]:.1%} ({', '.join(f'{share:.1%}' for share in results)})" for name, results in shares.items()
    }
    ahead = 100 * (means["pre-trained"] - means["from scratch"])
    return Evidence(figures | {"ahead by": f"{ahead:.1f} points", "labels": f"{LABELS}"}, ahead >= 10)


def zero_shot(folder: Path) -> Evidence:
    """Prompts about words whose kind the text never states. Above chance: by more than three standard errors."""
    correct = total = 0
    for seed in SEEDS:
        writer = pretrain(folder / f"read-{seed}", seed=seed, stated=0.5)
        for kind, prompt in questions(lexicon(seed, stated=0.5)):
            scores = writer.score(prompt, [f" {one}" for one in KINDS])
            correct, total = correct + (KINDS[scores.index(max(scores))] == kind), total + 1
    chance = 1 / len(KINDS)
    error = math.sqrt(chance * (1 - chance) / total)
    figures = {"accuracy": f"{correct / total:.1%}", "chance": f"{chance:.1%}", "questions": f"{total}"}
    return Evidence(figures, correct / total > chance + 3 * error)


def characters(folder: Path) -> Evidence:
    sizes = ["model.dim=128", "model.layers=2", "model.heads=4", "model.max_positions=64", "data.block=64", "data.batch=32"]
    pace = ["training.schedule.learning_rate=3e-3", f"training.validate_every={CHARACTER_STEPS}", "task.samples=0"]
    plain = ["model.dropout=0", "model.attention_dropout=0"]
    writer = train("shakespeare-char", [*sizes, *pace, *plain], folder / "run", seed=1, steps=CHARACTER_STEPS)
    texts = {
        split: "".join(f"{line}\n" for part in passages(writer.run.data, split) for line in read_passage(part))
        for split in ("train", "valid")
    }
    model, counted = writer.judge("valid")["bits_per_character"], NGram(texts["train"], ORDER).bits(texts["valid"])
    written, again = (writer.generate("", length=2000, n_best=4, seed=7) for _ in range(2))
    vocabulary = set(words_of(texts["train"]))
    words = known_words("\n".join(written), vocabulary)
    figures = {
        "bits per character": f"{model:.3f}",
        f"of an order-{ORDER} n-gram": f"{counted:.3f}",
        "generated words that the training text contains": f"{words:.1%}",
        "the same of the validation text": f"{known_words(texts['valid'], vocabulary):.1%}",
        "same seed, same text": "yes" if written == again else "no",
    }
    return Evidence(figures, model < counted and words > 0.8 and written == again)
