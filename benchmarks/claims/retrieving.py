"""Claims about vectors of sentences: a question finds its answer in other words, and neighbors in a text become similar.

paraphrase      144 stored questions, each a verb and a thing; every verb and every thing has four names. The answer is a page
                number. Asked are combinations of other names in another template, so that no word but "to" and "the" is
                stored; training has other combinations of the same names
skip-thought    documents of four sentences about one of twelve topics. A topic has four groups of words, and a sentence has
                words of one group, so two sentences of different groups share no word; only the text around them relates them
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

import heedful
from claims import Evidence
from claims.texts import write_lines
from heedful.config.toml import write_toml
from heedful.evaluation.bm25 import BM25
from heedful.runs.build import make_model

NAMES = 4  # of every verb and of every thing
SIZE = 12  # verbs, and things
TEMPLATES = ("how to {} the {}", "i want to {} the {}", "please {} the {}", "can you {} the {}")
TOPICS, GROUPS, WORDS = 12, 4, 6
STEPS = {"paraphrase": 300, "skip-thought": 300}


def ask(template: int, verb: int, thing: int, names: tuple[int, int]) -> str:
    return TEMPLATES[template].format(f"v{verb}n{names[0]}", f"t{thing}n{names[1]}")


def answer(verb: int, thing: int) -> str:
    return f"see page {verb * SIZE + thing}"


Pairs = list[tuple[str, str]]  # question, answer


def questions() -> tuple[Pairs, Pairs, Pairs]:
    """(question, answer) pairs to train on, to store and to ask; those to ask are not among those to train on."""
    train, stored, asked = Pairs(), Pairs(), Pairs()
    for verb, thing in product(range(SIZE), repeat=2):
        stored.append((ask(0, verb, thing, (0, 0)), answer(verb, thing)))
        asked_names = random.Random(f"{verb} {thing}").sample(list(product(range(1, NAMES), repeat=2)), 3)
        for template, names in product(range(len(TEMPLATES)), product(range(NAMES), repeat=2)):
            pair = ask(template, verb, thing, (names[0], names[1])), answer(verb, thing)
            (asked if template > 0 and names in asked_names else train).append(pair)
    return train, stored, asked


def train(folder: Path, config: dict[str, Any], steps: int) -> Path:
    """Train with a recipe of these tables; the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    schedule = {"name": "linear", "learning_rate": 1e-2, "warmup": 20}
    pace = {"steps": steps, "save_every": steps, "validate_every": steps, "schedule": schedule, "threads": 1}
    words = {"kind": "spaces", "min_frequency": 1}
    (folder / "recipe.toml").write_text(write_toml({**config, "tokenizer": words, "training": pace}))
    heedful.train(folder / "recipe.toml", run=folder / "run", device="cpu", console=Console(quiet=True))
    return folder / "run"


def paraphrase(folder: Path) -> Evidence:
    """Holds: 90% of the answers are among the first three, and a stored question has its own first."""
    learned, stored, asked = questions()
    for name, pairs in {"train": learned, "valid": asked[::5], "stored": stored}.items():
        write_lines(("\t".join(pair) for pair in pairs), folder / f"{name}.tsv")
    files = {split: {"file": f"{split}.tsv"} for split in ("train", "valid")}
    config = {
        "data": {"form": "dialogues", **files, "turns": 1, "max_length": 16, "batch": 128},
        "task": {"name": "retrieval"},
        "model": {"family": "encoder", "dim": 64, "layers": [], "norm": "post", "dropout": 0.0},
    }
    retriever = heedful.Retriever.load(train(folder, config, STEPS["paraphrase"]))
    retriever.build(folder / "stored.tsv")

    def share(pairs: Sequence[tuple[str, str]], top: int) -> float:
        found = retriever.search_many([[question] for question, _ in pairs], top)
        return sum(own in [one.text for one in several] for (_, own), several in zip(pairs, found, strict=True)) / len(pairs)

    words = BM25([question for question, _ in stored])
    by_words = 0
    for question, right in asked:
        best = words.scores(question).argsort(kind="stable")[::-1][:3]
        by_words += right in [stored[at][1] for at in best]
    own, paraphrased = share(stored, 1), share(asked, 3)
    figures = {
        "paraphrases with the answer among the first three": f"{paraphrased:.1%}",
        "of BM25": f"{by_words / len(asked):.1%}",
        "stored questions with their own answer first": f"{own:.1%}",
        "paraphrases": f"{len(asked):,}",
    }
    return Evidence(figures, paraphrased >= 0.9 and own == 1.0)


def sentence(topic: int, group: int, draw: random.Random) -> str:
    return " ".join(f"t{topic}g{group}w{word}" for word in draw.sample(range(WORDS), 3))


def document(draw: random.Random) -> list[str]:
    topic = draw.randrange(TOPICS)
    return [*(sentence(topic, draw.randrange(GROUPS), draw) for _ in range(4)), ""]


def topic_of_neighbors(embedder: heedful.Embedder, draw: random.Random) -> float:
    """The share of sentences whose nearest sentence without a common word has the same topic."""
    labels = [(topic, group) for topic in range(TOPICS) for group in range(GROUPS) for _ in range(3)]
    vectors = embedder.encode([sentence(*label, draw) for label in labels])
    topics, groups = torch.tensor(labels).T
    own_words = (topics[:, None] == topics) & (groups[:, None] == groups)  # (sentences, sentences)
    nearest = (vectors @ vectors.T).masked_fill(own_words, -2.0).argmax(1)
    return float((topics[nearest] == topics).float().mean())


def skip_thought(folder: Path) -> Evidence:
    """Holds: nearly all neighbors have the topic of the sentence, and by an untrained encoder few do."""
    draw = random.Random(1)
    for name, count in (("train", 3000), ("valid", 200)):
        write_lines((line for _ in range(count) for line in document(draw)), folder / f"{name}.txt")
    config = {
        "data": {"form": "text", "train": {"file": "train.txt"}, "valid": {"file": "valid.txt"}, "block": 16, "batch": 64},
        "task": {"name": "skip_thought"},
        "model": {"family": "encoder", "dim": 64, "layers": ["gru"], "dropout": 0.0},
    }
    run = train(folder, config, STEPS["skip-thought"])
    trained = heedful.Embedder.load(run)
    vocab = len(trained.system.target_tokenizer)
    initial: Any = make_model(cast(Any, trained.run), vocab, vocab).eval()  # with the weights before training
    untrained = heedful.Embedder(trained.run, replace(trained.system, models=[initial]), trained.checkpoint)
    shares = [topic_of_neighbors(embedder, random.Random(2)) for embedder in (trained, untrained)]
    figures = {
        "nearest sentences without a common word that have the same topic": f"{shares[0]:.1%}",
        "by the untrained encoder": f"{shares[1]:.1%}",
        "chance": f"{(GROUPS - 1) / (TOPICS * GROUPS - 1):.1%}",
    }
    return Evidence(figures, shares[0] >= 0.9 and shares[1] <= 0.3)
