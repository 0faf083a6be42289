"""Claims about trained translation models: replacing unknown words, ensembles, and sequence-level training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from claims import Evidence
from claims.learning import MODELS, evaluate, learn, percent, sources_of, targets_of
from claims.translating import train_and_test
from heedful.data.toys import Pair, dictionary, names
from heedful.evaluation.gleu import gleu
from heedful.tasks.batches import collate
from heedful.tasks.translation.predictor import Translator

COMMON_WORD = 5  # minimum frequency of a known word
ATTENTION_FAMILIES = ("bahdanau", "luong", "transformer", "convs2s")


def name_of(pair: Pair) -> str:
    return next(word for word in pair.source if word.startswith("Name"))


class Replaced(NamedTuple):
    unknowns: int  # unknown tokens that were generated
    right: int  # of them, replaced by the right name
    placed: int  # sentences with the name at the right position


def count_replaced(translator: Translator, pairs: Sequence[Pair]) -> Replaced:
    unknown, counts = translator.system.target_tokenizer.specials.unk, Replaced(0, 0, 0)
    answers = translator.translations(sources_of(pairs), replace_unknown=True)
    for pair, answer in zip(pairs, answers, strict=True):
        name, words = name_of(pair), answer.text.split()  # a word for every token
        replacements = [word for word, token in zip(words, answer.candidates[0].tokens, strict=True) if token == unknown]
        position = pair.target.index(name)
        more = len(replacements), replacements.count(name), int(words[position : position + 1] == [name])
        counts = Replaced(*(total + new for total, new in zip(counts, more, strict=True)))
    return counts


def posunk(folder: Path) -> Evidence:
    train, test = train_and_test(names)
    figures, worst = {}, 1.0
    for family in ATTENTION_FAMILIES:
        translator = learn(folder / family, train, MODELS[family], steps=2000, tokenizer__min_frequency=COMMON_WORD)
        counts = count_replaced(translator, test)
        share = counts.right / max(counts.unknowns, 1)
        figures[family] = (
            f"{percent(share)} of {counts.unknowns} <unk>, name at the right position in {percent(counts.placed / len(test))}"
        )
        worst = min(worst, share)
    return Evidence(figures, worst >= 0.9)


def ensemble(folder: Path) -> Evidence:
    """Training stops early, so that the members differ."""
    train, test = train_and_test(dictionary)
    steps, runs = 200, [folder / f"seed-{seed}" for seed in (1, 2)]
    alone = [learn(run, train, MODELS["bahdanau"], steps=steps, seed=seed) for seed, run in enumerate(runs, start=1)]
    first, second, both = (likelihood(one, test) for one in (*alone, alone[0].join(alone[1:])))
    copies = alone[0].join(alone[:1])
    again, lines = likelihood(copies, test), sources_of(test)
    same = sum(one == other for one, other in zip(copies.translate(lines), alone[0].translate(lines), strict=True))
    figures = {
        "nats per token of the members": f"{first:.4f}, {second:.4f}",
        "their mean": f"{(first + second) / 2:.4f}",
        "of the ensemble": f"{both:.4f}",
        "of two copies, minus the single model": f"{again - first:.1e}",
        "translations of two copies equal to the single model's": f"{same} of {len(test)}",
    }
    return Evidence(figures, both <= (first + second) / 2 and abs(again - first) < 1e-6 and same == len(test))


def likelihood(translator: Translator, pairs: Sequence[Pair]) -> float:
    """The negative log-likelihood per token, including the end token."""
    scored = [one for one in translator.score(sources_of(pairs), targets_of(pairs)) if one is not None]
    return -sum(one.log_probability for one in scored) / sum(one.tokens for one in scored)


DRAWS = 15


class Accuracy(NamedTuple):
    """From 0 to 1."""

    sampled: float  # mean GLEU of sampled translations
    greedy: float  # mean GLEU of greedy search
    tokens: float  # token accuracy of greedy search
    next_word: float  # accuracy under teacher forcing, including the end token


def measure(translator: Translator, pairs: Sequence[Pair]) -> Accuracy:
    lines, references = sources_of(pairs), [pair.target for pair in pairs]
    sampled = [
        gleu(candidate.text.split(), target)
        for one, target in zip(translator.translations(lines, method="sample", n_best=DRAWS), references, strict=True)
        for candidate in one.candidates
    ]
    greedy = [
        gleu(predicted.split(), target) for predicted, target in zip(translator.translate(lines), references, strict=True)
    ]
    next_word = next_words(translator, pairs)
    return Accuracy(sum(sampled) / len(sampled), sum(greedy) / len(greedy), evaluate(translator, pairs).tokens, next_word)


@torch.inference_mode()
def next_words(translator: Translator, pairs: Sequence[Pair]) -> float:
    source, target = translator.system.source_tokenizer, translator.system.target_tokenizer
    ids = source.encode_many(sources_of(pairs)), target.encode_many(targets_of(pairs))
    batch = collate(*ids, source.specials, target.specials)
    model = translator.model
    hidden = model.forced(batch.source, batch.source_mask, batch.target_in).hidden
    predicted, real = model.project(hidden).argmax(-1), batch.target_out != target.specials.pad  # (rows, target time)
    return float((predicted == batch.target_out)[real].float().mean())


def gnmt_rl(folder: Path) -> Evidence:
    """Sequence-level training, compared with likelihood training for as many steps."""
    train, test = train_and_test(dictionary)
    before = learn(folder / "likelihood", train, MODELS["gnmt"], steps=400)
    more = {
        "training__init": str(folder / "likelihood" / "run"),
        "training__schedule__learning_rate": 3e-4,
        "training__schedule__warmup": 10,
    }
    after = learn(folder / "refined", train, MODELS["gnmt"], steps=300, task__sequence__method="reward", **more)
    longer = learn(folder / "longer", train, MODELS["gnmt"], steps=300, **more)
    was, refined, went_on = (measure(one, test) for one in (before, after, longer))
    words = ("mean GLEU of samples", "mean GLEU of greedy search", "tokens right", "next words right")
    figures = {
        what: f"{percent(one)} -> {percent(other)} (likelihood instead: {percent(third)})"
        for what, one, other, third in zip(words, was, refined, went_on, strict=True)
    }
    kept = refined.tokens >= was.tokens - 0.01 and refined.next_word >= was.next_word - 0.01
    return Evidence(figures, refined.sampled > was.sampled and kept)
