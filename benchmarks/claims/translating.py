"""What each family of translators is said to learn: copying, or a dictionary whose adjectives change places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path

from claims import Found
from claims.learning import MODELS, Right, apart, learn, percent, sources_of, targets_of, told
from claims.toys import Link, Pair, copy, dictionary
from heedful.build import Translator
from heedful.data.gold import SentencePair
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.studies.alignment import Aligner, Models, align, heads_of

PAIRS, TRIED = 30_000, 500
SHORT = range(3, 9)  # words of a sentence of the dictionary
LONGER = (8, 10, 12)  # the longest that was learned, and two that were not
SCORES, SCOPES = ("dot", "general", "concat", "location"), ("global", "local-m", "local-p")


def dictionary_pairs(count: int = PAIRS) -> tuple[list[Pair], list[Pair]]:
    """To learn and to try."""
    return apart(dictionary(count, SHORT, seed=1), dictionary(TRIED, SHORT, seed=2))


def fixed_vector(folder: Path) -> Found:
    """Tried with at least three symbols: all that are shorter were learned."""
    train, test = apart(copy(PAIRS, range(1, 7), seed=1), copy(TRIED, range(3, 7), seed=2))
    lengths = {length: copy(TRIED, [length], seed=length) for length in (6, 8, 10)}
    figures, exact = {}, {}
    for name, reverse in (("reversed", True), ("forward", False)):
        translator = learn(folder / name, train, MODELS["sutskever"] | {"reverse": reverse}, steps=2500)
        exact[name] = {0: told(translator, test).exact} | {n: told(translator, pairs).exact for n, pairs in lengths.items()}
        trained, *longer = map(percent, exact[name].values())
        figures[f"{name}: exact at trained lengths"] = trained
        figures[f"{name}: at 6, 8, 10"] = ", ".join(longer)
    one = exact["reversed"]
    collapses = one[8] <= one[6] / 2 and one[10] <= 0.1
    return Found(figures, one[0] >= 0.95 and collapses and one[0] >= exact["forward"][0] - 0.01)


def bahdanau(folder: Path) -> Found:
    train, test = dictionary_pairs()
    translators = {
        "Bahdanau": learn(folder / "bahdanau", train, MODELS["bahdanau"], steps=800),
        "fixed vector": learn(folder / "sutskever", train, MODELS["sutskever"], steps=3000),
    }
    ours = told(translators["Bahdanau"], test)
    error = alignment_error(translators["Bahdanau"], test)
    longer = {
        name: [told(one, dictionary(TRIED, [length], seed=length)) for length in LONGER] for name, one in translators.items()
    }
    figures = {"tokens right": percent(ours.tokens), "AER": f"{error:.3f}"} | worse(longer)
    return Found(figures, ours.tokens >= 0.95 and error <= 0.15)


def worse(found: Mapping[str, Sequence[Right]]) -> dict[str, str]:
    """What each has right at every length, and whose last is the smaller part of its first."""
    figures: dict[str, str] = {}
    lengths = ", ".join(map(str, LONGER))
    for what, measure in (("exact", attrgetter("exact")), ("tokens right", attrgetter("tokens"))):
        shares = {name: [measure(one) for one in some] for name, some in found.items()}
        figures |= {f"{name}: {what} at {lengths}": ", ".join(map(percent, some)) for name, some in shares.items()}
        kept = {name: some[-1] / max(some[0], 1e-9) for name, some in shares.items()}
        loser = min(kept, key=lambda name: kept[name])
        figures[f"degrades more by {what}"] = f"{loser} ({', '.join(f'{name} keeps {percent(kept[name])}' for name in kept)})"
    return figures


def alignment_error(translator: Translator, pairs: list[Pair]) -> float:
    """Of one link for each target word: where its only head looked most when the word was said."""
    models = Models(translator.system)
    words = map(SentencePair, sources_of(pairs), targets_of(pairs))
    found = list(align(models, words, Aligner(tuple(heads_of(models)))))
    return alignment_error_rate(found, [sure(pair.links) for pair in pairs]).value


def sure(links: set[Link]) -> Alignment:
    return Alignment(frozenset(links), frozenset(links))


def luong(folder: Path) -> Found:
    """Three words on either side are all that local attention sees."""
    train, test = dictionary_pairs()
    tokens = {}
    for score, scope in product(SCORES, SCOPES):
        name = f"{score}, {scope}"
        model = MODELS["luong"] | {"score": score, "scope": scope} | ({} if scope == "global" else {"radius": 3})
        tokens[name] = told(learn(folder / name.replace(", ", "-"), train, model, steps=2500), test).tokens
    order = sorted(tokens, key=lambda name: tokens[name])
    figures = {what: f"{name} {percent(tokens[name])}" for what, name in (("worst", order[0]), ("best", order[-1]))}
    figures["variants with 95% of tokens right"] = f"{sum(share >= 0.95 for share in tokens.values())} of {len(tokens)}"
    figures["all"] = "; ".join(f"{name} {percent(share)}" for name, share in tokens.items())
    return Found(figures, min(tokens.values()) >= 0.95)


def convs2s(folder: Path) -> Found:
    train, test = dictionary_pairs()
    found = told(learn(folder, train, MODELS["convs2s"], steps=1500), test)
    return Found(shares(found), found.tokens >= 0.95)


def bytenet(folder: Path) -> Found:
    """A symbol is two or three characters, and spaces are characters too."""
    train, test = apart(copy(PAIRS, SHORT, seed=1), copy(TRIED, SHORT, seed=2))
    characters = {"tokenizer__kind": "characters", "tokenizer__min_frequency": 2, "data__batch_tokens": 2048}
    found = told(learn(folder, train, MODELS["bytenet"], steps=1500, **characters), test)
    return Found(shares(found), found.exact >= 0.95)


def shares(found: Right) -> dict[str, str]:
    return {"exact": percent(found.exact), "tokens right": percent(found.tokens)}
