"""Every family of models, on the built-in corpus and on real data."""

from __future__ import annotations

from directions import HEAD, direction_rows, gather, overridden
from families_rows import families_head, families_rows, families_text
from language_rows import HEAD as LANGUAGE_HEAD
from language_rows import language_rows

from sections import RESULTS, measured, read, table


def families() -> str:
    if not measured("families.json"):
        return ""
    found = read("families.json")
    return (
        f"## Families of models\n\n{families_text(found)}\n\n`python benchmarks/families.py`\n"
        f"\n{table(families_head(found), families_rows(found))}\n\n![BLEU against length](pictures/families-length.png)\n"
    )


def directions() -> str:
    found = gather(RESULTS / "families")
    if not found:
        return ""
    results = [one for several in found.values() for seeds in several.values() for one in seeds]
    options = sorted(
        {" ".join(option for option in one["overrides"] if option.startswith("training.minutes")) for one in results}
    )
    shares = {one["percent_of_the_chip"] for one in results}
    others = "; ".join(f"{family} with `{text}`" for family, text in overridden(found).items())
    return (
        "## Families on Multi30k\n\ntest2016, beam 5: lower-cased BLEU, the mean of the seeds, and in brackets cased and from "
        "the worst seed to the best. What was chosen on the validation set is in docs/guides/families.md; all by their recipes"
        f"{f' ({others})' if others else ''}, in the same time "
        f"({' or '.join(options)}), on a GPU that several share, each on no more of it at a time than the table says"
        f"{'' if len(shares) == 1 else ': unequal shares favor the larger'}. "
        f"{results[0]['machine']}, torch {results[0]['torch']}, "
        f"{max(one['date'] for one in results)}.\n\n`python benchmarks/quality.py --help`, `benchmarks/directions.py`\n"
        f"\n{table(HEAD, direction_rows(found))}\n"
    )


def claims() -> str:
    if not measured("claims.json"):
        return ""
    found = read("claims.json")
    rows = [
        [
            name,
            f"{one['says']} ({one['of']})",
            "yes" if one["holds"] else "no",
            "; ".join(f"{what}: {figure}" for what, figure in one["figures"].items()),
            f"{one['seconds']}",
        ]
        for name, one in found.items()
    ]
    one = next(iter(found.values()))
    return (
        "## Claims, tried on generated data\n\nWhat is said of each system, with models of one or two layers of 64 numbers on "
        "toy data whose right answers are known (benchmarks/claims); whether it held here, and with which figures. One seed "
        f"unless said, one thread; seconds of the processor. {one['machine']}, torch {one['torch']}, "
        f"{max(one['date'] for one in found.values())}.\n"
        f"\n`python benchmarks/prove.py`\n\n{table(['', 'said', 'holds', 'found', 'seconds'], rows)}\n"
    )


def language() -> str:
    rows = language_rows(RESULTS / "language")
    if not rows:
        return ""
    return (
        "## Language models\n\nWeights were chosen on the validation data; seconds are those of the whole training, validation "
        "included. Published beside it: nanoGPT's validation loss of 1.47 on tiny Shakespeare after three minutes of an A100; "
        "AWD-LSTM's test perplexity of 65.8 on WikiText-2. The validation phrases of SST-2 are often parts of training "
        "phrases; its test sentences are not.\n\n`python benchmarks/language.py --help`\n"
        f"\n{table(LANGUAGE_HEAD, rows)}\n"
    )
