"""What is done with trained translators: unknown words looked up, several made one, and refinement by whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from claims import Found
from claims.learning import MODELS, learn, percent, sources_of, targets_of, told
from claims.toys import Pair, dictionary
from claims.translating import PAIRS, SHORT, TRIED, dictionary_pairs
from heedful.build import Translator, load_ensemble
from heedful.evaluation.gleu import gleu
from heedful.tasks.batches import collate

NAMES = 1_000_000  # so many that hardly one occurs twice
COMMON_WORD = 5  # times that a word must occur to be known
LOOKERS = ("bahdanau", "luong", "transformer", "convs2s")


def name_of(pair: Pair) -> str:
    return next(word for word in pair.source if word.startswith("Name"))


def with_names(learned: int = PAIRS) -> tuple[list[Pair], list[Pair]]:
    """No name of the sentences to try is in those to learn."""
    train, test = (dictionary(count, SHORT, seed=seed, names=NAMES) for count, seed in ((learned, 1), (TRIED, 2)))
    known = {name_of(pair) for pair in train}
    return train, [pair for pair in test if name_of(pair) not in known]


class Replaced(NamedTuple):
    unknowns: int  # unknown words that were said
    right: int  # of them, how many became the name of their sentence
    placed: int  # sentences with the name where it belongs


def replaced(translator: Translator, pairs: Sequence[Pair]) -> Replaced:
    unknown, found = translator.system.target_tokenizer.specials.unk, Replaced(0, 0, 0)
    answers = translator.translations(sources_of(pairs), replace_unknown=True)
    for pair, answer in zip(pairs, answers, strict=True):
        name, words = name_of(pair), answer.text.split()  # a word for every token
        put = [word for word, token in zip(words, answer.candidates[0].tokens, strict=True) if token == unknown]
        place = pair.target.index(name)
        more = len(put), put.count(name), int(words[place : place + 1] == [name])
        found = Replaced(*(one + other for one, other in zip(found, more, strict=True)))
    return found


def posunk(folder: Path) -> Found:
    train, test = with_names()
    figures, worst = {}, 1.0
    for family in LOOKERS:
        translator = learn(folder / family, train, MODELS[family], steps=2000, tokenizer__min_frequency=COMMON_WORD)
        found = replaced(translator, test)
        share = found.right / max(found.unknowns, 1)
        figures[family] = (
            f"{percent(share)} of {found.unknowns} <unk>, name at its place in {percent(found.placed / len(test))}"
        )
        worst = min(worst, share)
    return Found(figures, worst >= 0.9)


def ensemble(folder: Path) -> Found:
    """Stopped early, so that there is something to disagree about."""
    train, test = dictionary_pairs()
    steps, runs = 200, [folder / f"seed-{seed}" for seed in (1, 2)]
    alone = [learn(run, train, MODELS["bahdanau"], steps=steps, seed=seed) for seed, run in enumerate(runs, start=1)]
    first, second, both = (likelihood(one, test) for one in (*alone, load_ensemble([run / "run" for run in runs])))
    copies = load_ensemble([runs[0] / "run"] * 2)
    again, lines = likelihood(copies, test), sources_of(test)
    same = sum(one == other for one, other in zip(copies.translate(lines), alone[0].translate(lines), strict=True))
    figures = {
        "nats a token of the members": f"{first:.4f}, {second:.4f}",
        "their mean": f"{(first + second) / 2:.4f}",
        "of the ensemble": f"{both:.4f}",
        "of two copies, less the single model": f"{again - first:.1e}",
        "translations of two copies that are the single model's": f"{same} of {len(test)}",
    }
    return Found(figures, both <= (first + second) / 2 and abs(again - first) < 1e-6 and same == len(test))


def likelihood(translator: Translator, pairs: Sequence[Pair]) -> float:
    """The negative log-likelihood of a token, the end counted."""
    scored = [one for one in translator.score(sources_of(pairs), targets_of(pairs)) if one is not None]
    return -sum(one.log_probability for one in scored) / sum(one.tokens for one in scored)


DRAWS = 15


class Judged(NamedTuple):
    """From 0 to 1."""

    drawn: float  # mean GLEU of sentences drawn from the model
    greedy: float  # of those that greedy search finds
    tokens: float  # words of the latter that are right
    next_word: float  # right after the right words, the end counted


def judged(translator: Translator, pairs: Sequence[Pair]) -> Judged:
    lines, wanted = sources_of(pairs), [pair.target for pair in pairs]
    drawn = [
        gleu(candidate.text.split(), target)
        for one, target in zip(translator.translations(lines, method="sample", n_best=DRAWS), wanted, strict=True)
        for candidate in one.candidates
    ]
    greedy = [gleu(said.split(), target) for said, target in zip(translator.translate(lines), wanted, strict=True)]
    guessed = next_words(translator, pairs)
    return Judged(sum(drawn) / len(drawn), sum(greedy) / len(greedy), told(translator, pairs).tokens, guessed)


@torch.inference_mode()
def next_words(translator: Translator, pairs: Sequence[Pair]) -> float:
    source, target = translator.system.source_tokenizer, translator.system.target_tokenizer
    ids = source.encode_many(sources_of(pairs)), target.encode_many(targets_of(pairs))
    batch = collate(*ids, source.specials, target.specials)
    model = translator.model
    hidden = model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0)).hidden
    said, real = model.project(hidden).argmax(-1), batch.target_out != target.specials.pad  # (rows, target time)
    return float((said == batch.target_out)[real].float().mean())


def gnmt_rl(folder: Path) -> Found:
    """Refined, and for comparison taught by likelihood for as many steps more."""
    train, test = dictionary_pairs()
    before = learn(folder / "likelihood", train, MODELS["gnmt"], steps=400)
    more = {
        "training__init": str(folder / "likelihood" / "run"), "training__schedule__rate": 3e-4, "training__schedule__warmup": 10
    }  # fmt: skip
    after = learn(folder / "refined", train, MODELS["gnmt"], steps=300, task__sequence__method="reward", **more)
    longer = learn(folder / "longer", train, MODELS["gnmt"], steps=300, **more)
    was, refined, went_on = (judged(one, test) for one in (before, after, longer))
    words = ("mean GLEU of draws", "mean GLEU of greedy search", "tokens right", "next words right")
    figures = {
        what: f"{percent(one)} -> {percent(other)} (likelihood instead: {percent(third)})"
        for what, one, other, third in zip(words, was, refined, went_on, strict=True)
    }
    kept = refined.tokens >= was.tokens - 0.01 and refined.next_word >= was.next_word - 0.01
    return Found(figures, refined.drawn > was.drawn and kept)
