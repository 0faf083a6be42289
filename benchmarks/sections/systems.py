"""Model families on the built-in corpus and on real data."""

from __future__ import annotations

from directions import HEAD, direction_rows, gather, overridden
from families_rows import families_head, families_rows, families_text
from language_rows import HEAD as LANGUAGE_HEAD
from language_rows import language_rows

from sections import RESULTS, measured, read, table


def families() -> str:
    if not measured("families.json"):
        return ""
    results = read("families.json")
    return (
        f"## Model families\n\n{families_text(results)}\n\n`python benchmarks/families.py`\n"
        f"\n{table(families_head(results), families_rows(results))}\n\n![BLEU by length](pictures/families-length.png)\n"
    )


def directions() -> str:
    by_family = gather(RESULTS / "families")
    if not by_family:
        return ""
    results = [result for several in by_family.values() for seeds in several.values() for result in seeds]
    options = sorted(
        {" ".join(option for option in result["overrides"] if option.startswith("training.minutes")) for result in results}
    )
    shares = {result["percent_of_the_chip"] for result in results}
    others = "; ".join(f"{family} with `{text}`" for family, text in overridden(by_family).items())
    return (
        "## Model families on Multi30k\n\ntest2016, beam 5: lower-cased BLEU, the mean over seeds, and in brackets cased BLEU "
        "and the range of the seeds. docs/guides/families.md lists what was selected on the validation set; all with their "
        f"recipes{f' ({others})' if others else ''} and the same time "
        f"({' or '.join(options)}), on a shared GPU, each limited to the share given in the table"
        f"{'' if len(shares) == 1 else ': unequal shares favor the larger'}. "
        f"{results[0]['machine']}, torch {results[0]['torch']}, "
        f"{max(result['date'] for result in results)}.\n\n`python benchmarks/quality.py --help`, `benchmarks/directions.py`\n"
        f"\n{table(HEAD, direction_rows(by_family))}\n"
    )


def claims() -> str:
    if not measured("claims.json"):
        return ""
    results = read("claims.json")
    rows = [
        [
            name,
            f"{result['says']} ({result['of']})",
            "yes" if result["holds"] else "no",
            "; ".join(f"{what}: {figure}" for what, figure in result["figures"].items()),
            f"{result['seconds']}",
        ]
        for name, result in results.items()
    ]
    result = next(iter(results.values()))
    return (
        "## Claims of papers on generated data\n\nClaims about each model, tested with one or two layers of size 64 on toy "
        "data with known answers (benchmarks/claims): whether they hold, and the measured values. One seed "
        f"unless given, one thread; seconds of CPU time. {result['machine']}, torch {result['torch']}, "
        f"{' and '.join(sorted({result['date'] for result in results.values()}))}.\n"
        f"\n`python benchmarks/prove.py`\n\n{table(['', 'claim', 'holds', 'measured', 'seconds'], rows)}\n"
    )


def echo() -> str:
    if not measured("echo.json"):
        return ""
    results = read("echo.json")
    first = next(iter(results.values()))
    rows = [
        [
            kind,
            f"{result['layers']} of size {result['dim']}",
            "all" if result["receptive_field"] is None else f"{result['receptive_field']}",
            *(f"{share:.1%} ({result['updates'][delay]:,})" for delay, share in result["accuracy"].items()),
            f"{result['learning_rate']}",
            f"{result['seconds']}",
        ]
        for kind, result in results.items()
    ]
    delays = [f"{delay} steps" for delay in first["accuracy"]]
    head = ["layer", "layers", "receptive field", *delays, "learning rate", "seconds"]
    return (
        "## Echo\n\n"
        "The label of a symbol is the symbol a fixed number of steps before it, among 8; accuracy on 200 new "
        "sequences, chance is 12.5%, and the number of updates. Every kind has the same stack at every delay and is trained by "
        "the same rule: batches of 32 new sequences until the accuracy on validation sequences is 99.5%, has not risen by a "
        "percentage point in 500 updates, or after 5,000 updates, with the learning rate of two that is better at delays of "
        "5 and 20. An LSTM or GRU has to keep all symbols of the delay in its state. One seed, one thread, seconds of CPU "
        f"time, both learning rates included ({first['machine']}, torch {first['torch']}, {first['date']}).\n"
        f"\n`python benchmarks/echo.py`\n\n{table(head, rows)}\n\n![accuracy by delay](pictures/echo.png)\n"
    )


def language() -> str:
    rows = language_rows(RESULTS / "language")
    if not rows:
        return ""
    return (
        "## Language models\n\nCheckpoints were selected on the validation data; seconds are those of the whole training, "
        "validation included. Published results: nanoGPT's validation loss of 1.47 on tiny Shakespeare after three "
        "minutes on an A100; AWD-LSTM's test perplexity of 65.8 on WikiText-2.\n\n`python benchmarks/language.py --help`\n"
        f"\n{table(LANGUAGE_HEAD, rows)}\n"
    )
