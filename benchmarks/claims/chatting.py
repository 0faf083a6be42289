"""Claims about replies to dialogues.

by_heart         fifty exchanges are learned: 95% of the replies are exact                              (Vinyals and Le, 2015)
two_turns_back   the answer is in a turn of the user before the last one: a model of the history finds it, a model of the last
                 turn has to guess, and the turn with the answer has most of HRAN's utterance attention    (Xing et al., 2018)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

import heedful
from claims import Evidence
from heedful.config.toml import write_toml
from heedful.data.toys import CALLED, Dialogue, sample, two_turns_back

COUNTS = {"train": 3000, "valid": 100, "test": 300}
SEEDS = (1, 2, 3)
STEPS = {"luong": 2000, "hran": 1000}
EXCHANGES, WORDS = 50, 30
SIZES: dict[str, dict[str, Any]] = {
    "luong": {"dim": 64, "layers": 1, "dropout": 0.0},
    "hran": {"dim": 64, "embedding": 64, "readout": 64, "dropout": 0.0},
}


def train(folder: Path, dialogues: Mapping[str, Any], family: str, turns: int, steps: int, *, seed: int = 1) -> heedful.ChatBot:
    """A small model of the last turns of dialogues."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "seed": seed,
        "data": {"form": "dialogues", "train": {"file": "train.jsonl"}, "valid": {"file": "valid.jsonl"}, "turns": turns}
        | {"replies": "second", "max_length": 64, "batch_tokens": 1024},
        "task": {"name": "chat", "label_smoothing": 0.0, "validation_replies": 20},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": {"family": family, **SIZES[family]},
        "training": {
            "steps": steps,
            "save_every": steps,
            "validate_every": steps,
            "metric": "perplexity",
            "schedule": {"name": "cosine", "learning_rate": 3e-3, "warmup": 50},
            "threads": 1,
        },
        "search": {"method": "greedy", "max_extra": 10},
    }
    recipe = folder / "recipe.toml"
    recipe.write_text(write_toml(config))
    heedful.train(recipe, run=folder / "run", device="cpu", console=Console(quiet=True), **dialogues)
    return heedful.ChatBot.load(folder / "run")


def exchanges(count: int) -> list[list[str]]:
    """Questions and replies of random words, so that nothing but the exchange itself can be learned."""
    draw = random.Random(17)
    words = [f"w{number}" for number in range(WORDS)]
    return [[" ".join(draw.choices(words, k=draw.randint(3, 6))) for _ in range(2)] for _ in range(count)]


def by_heart(folder: Path) -> Evidence:
    pairs = exchanges(EXCHANGES)
    splits = {"train": pairs * 4, "valid": pairs}
    right = {}
    for family in SIZES:
        replies = train(folder / family, splits, family, 1, 250).predict([question for question, _ in pairs])
        right[family] = sum(reply == answer for reply, (_, answer) in zip(replies, pairs, strict=True)) / len(pairs)
    return Evidence({family: f"{share:.0%}" for family, share in right.items()}, min(right.values()) >= 0.95)


def as_one_example(dialogue: Dialogue) -> list[dict[str, str]]:
    """A dialogue whose only reply to learn is the answer: all turns before it are of the first speaker."""
    *turns, answer = dialogue.turns
    return [*({"speaker": "user", "text": turn} for turn in turns), {"speaker": "model", "text": answer}]


def accuracy(bot: heedful.ChatBot, dialogues: Sequence[Dialogue]) -> float:
    """The share of dialogues whose last reply is exact."""
    replies = bot.predict(["\t".join(dialogue.turns[:-1]) for dialogue in dialogues])
    return sum(reply == dialogue.turns[-1] for reply, dialogue in zip(replies, dialogues, strict=True)) / len(dialogues)


def right_utterance(bot: heedful.ChatBot, dialogues: Sequence[Dialogue]) -> float:
    """The share of dialogues where the turn with the answer has the largest weight."""
    right = 0
    for dialogue in dialogues:
        turns = bot.why(dialogue.turns[:-1], dialogue.turns[-1]).turns
        right += dialogue.turns[-1] in max(turns, key=lambda turn: turn.weight).text.split()
    return right / len(dialogues)


def two_turns_back_claim(folder: Path) -> Evidence:
    made = {split: list(sample(two_turns_back, split, count)) for split, count in COUNTS.items()}
    splits = {split: [as_one_example(one) for one in made[split]] for split in made}
    kinds = {"single turn": ("luong", 1), "joined history": ("luong", 5), "HRAN": ("hran", 5)}
    right: dict[str, list[float]] = {"right utterance on top": []}
    for seed in SEEDS:
        for name, (family, turns) in kinds.items():
            bot = train(folder / f"{name}-{seed}".replace(" ", "-"), splits, family, turns, STEPS[family], seed=seed)
            right.setdefault(name, []).append(accuracy(bot, made["test"]))
        right["right utterance on top"].append(right_utterance(bot, made["test"]))  # of HRAN, the last one
    average, chance = {name: mean(shares) for name, shares in right.items()}, 1 / len(CALLED)
    holds = (
        min(average["joined history"], average["HRAN"]) >= 0.95
        and average["single turn"] <= 2 * chance
        and average["right utterance on top"] >= 0.8
    )
    figures = {name: f"{average[name]:.1%} ({', '.join(f'{share:.1%}' for share in shares)})" for name, shares in right.items()}
    return Evidence({**figures, "chance": f"{chance:.1%}"}, holds)
