"""Claims about translation models: they learn to copy, or a dictionary with swapped adjectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path

from rich.console import Console

import heedful
from claims import Evidence
from claims.learning import MODELS, Right, evaluate, learn, percent, sources_of, targets_of
from heedful.data.gold import SentencePair
from heedful.data.toys import SHORT, Draw, Link, Pair, copy, dictionary, many_to_one, reverse, sample
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.measures.alignment_heads import Aligner, Models, align, heads_of
from heedful.tasks.translation.predictor import Translator

PAIRS, TRIED = 30_000, 500
ORDERS = 8  # of a source of `many_to_one`
LONGER = (8, 10, 12)  # the longest training length, and two beyond it
SCORES, SCOPES = ("dot", "general", "concat", "location"), ("global", "local-m", "local-p")


def train_and_test(draw: Draw[Pair], count: int = PAIRS) -> tuple[list[Pair], list[Pair]]:
    """Training and test pairs, without a sentence in common."""
    return list(sample(draw, "train", count)), list(sample(draw, "test", TRIED))


def bahdanau(folder: Path) -> Evidence:
    train, test = train_and_test(dictionary)
    translators = {
        "Bahdanau": learn(folder / "bahdanau", train, MODELS["bahdanau"], steps=800),
        "fixed vector": learn(folder / "sutskever", train, MODELS["sutskever"], steps=3000),
    }
    ours = evaluate(translators["Bahdanau"], test)
    error = alignment_error(translators["Bahdanau"], test)
    longer = {
        name: [evaluate(one, list(sample(partial(dictionary, lengths=[length]), "test", TRIED))) for length in LONGER]
        for name, one in translators.items()
    }
    figures = {"tokens right": percent(ours.tokens), "AER": f"{error:.3f}"} | worse(longer)
    return Evidence(figures, ours.tokens >= 0.95 and error <= 0.15)


def worse(accuracies: Mapping[str, Sequence[Right]]) -> dict[str, str]:
    """The accuracy of each model at every length, and which model degrades most."""
    figures: dict[str, str] = {}
    lengths = ", ".join(map(str, LONGER))
    for what, measure in (("exact", attrgetter("exact")), ("tokens right", attrgetter("tokens"))):
        shares = {name: [measure(one) for one in some] for name, some in accuracies.items()}
        figures |= {f"{name}: {what} at {lengths}": ", ".join(map(percent, some)) for name, some in shares.items()}
        kept = {name: some[-1] / max(some[0], 1e-9) for name, some in shares.items()}
        loser = min(kept, key=lambda name: kept[name])
        figures[f"degrades more by {what}"] = f"{loser} ({', '.join(f'{name} keeps {percent(kept[name])}' for name in kept)})"
    return figures


def alignment_error(translator: Translator, pairs: list[Pair]) -> float:
    """AER with one link per target word: the largest attention weight of the only head when the word is predicted."""
    models = Models(translator.system)
    words = map(SentencePair, sources_of(pairs), targets_of(pairs))
    links = list(align(models, words, Aligner(tuple(heads_of(models)))))
    return alignment_error_rate(links, [sure(pair.links) for pair in pairs]).value


def sure(links: frozenset[Link]) -> Alignment:
    return Alignment(links, links)


def luong(folder: Path) -> Evidence:
    """Local attention has a radius of three words."""
    train, test = train_and_test(dictionary)
    tokens = {}
    for score, scope in product(SCORES, SCOPES):
        name = f"{score}, {scope}"
        model = MODELS["luong"] | {"score": score, "scope": scope} | ({} if scope == "global" else {"radius": 3})
        tokens[name] = evaluate(learn(folder / name.replace(", ", "-"), train, model, steps=2500), test).tokens
    order = sorted(tokens, key=lambda name: tokens[name])
    figures = {what: f"{name} {percent(tokens[name])}" for what, name in (("worst", order[0]), ("best", order[-1]))}
    figures["variants with 95% of tokens right"] = f"{sum(share >= 0.95 for share in tokens.values())} of {len(tokens)}"
    figures["all"] = "; ".join(f"{name} {percent(share)}" for name, share in tokens.items())
    return Evidence(figures, min(tokens.values()) >= 0.95)


def convs2s(folder: Path) -> Evidence:
    train, test = train_and_test(dictionary)
    accuracy = evaluate(learn(folder, train, MODELS["convs2s"], steps=1500), test)
    return Evidence(shares(accuracy), accuracy.tokens >= 0.95)


def bytenet(folder: Path) -> Evidence:
    """A symbol is two or three characters; spaces are characters, too."""
    train, test = train_and_test(partial(copy, lengths=SHORT, symbols=20))
    characters = {"tokenizer__kind": "characters", "tokenizer__min_frequency": 2, "data__batch_tokens": 2048}
    accuracy = evaluate(learn(folder, train, MODELS["bytenet"], steps=1500, **characters), test)
    return Evidence(shares(accuracy), accuracy.exact >= 0.95)


def transformer(folder: Path) -> Evidence:
    """By the recipes toy-copy and toy-reverse."""
    exact = {}
    for toy, draw in (("copy", copy), ("reverse", reverse)):
        own, quiet = folder / toy, Console(quiet=True)
        heedful.train(f"toy-{toy}", ["training.threads=1"], run=own / "run", device="cpu", console=quiet)
        exact[toy] = evaluate(Translator.load(own / "run", device="cpu"), list(sample(draw, "test", TRIED))).exact
    return Evidence({toy: percent(share) for toy, share in exact.items()}, min(exact.values()) >= 0.99)


def many_orders(folder: Path) -> Evidence:
    """All eight orders of a source have one translation; none of them is in the training data."""
    train, test = train_and_test(many_to_one)
    translator = learn(folder, train, MODELS["transformer"], steps=1500)
    orders = [pair for one in test[:100] for pair in all_orders(one)]
    translations = translator.translate(sources_of(orders))
    accuracy = evaluate(translator, test)
    same = sum(len(set(translations[at : at + ORDERS])) == 1 for at in range(0, len(orders), ORDERS)) / 100
    figures = shares(accuracy) | {"the same translation for all eight orders": percent(same)}
    return Evidence(figures, accuracy.exact >= 0.95 and same >= 0.95)


def all_orders(pair: Pair) -> list[Pair]:
    """The pairs of all orders of a source of `many_to_one`."""
    words = [pair.source[source] for source, _ in sorted(pair.links, key=lambda link: link[1])]  # in the order of the target
    adverb, (subject, verb, object_) = words[0], (words[1:3], words[3], words[4:6])
    clauses = [[*first, verb, *second] for first, second in product((subject, subject[::-1]), (object_, object_[::-1]))]
    return [pair._replace(source=source) for clause in clauses for source in ([adverb, *clause], [*clause, adverb])]


def shares(accuracy: Right) -> dict[str, str]:
    return {"exact": percent(accuracy.exact), "tokens right": percent(accuracy.tokens)}
