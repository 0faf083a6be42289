"""Word alignment from attention weights on the built-in corpus, whose links are known exactly.

    python benchmarks/builtin_alignment.py --work runs/builtin-alignment       -> benchmarks/results/builtin_alignment.json

    transformer       the model of the recipe demo, by layer, and with heads and thresholds selected on validation sentences
    both directions   with a model for the reverse direction, as in alignment.py
    guided            one head is supervised in training by the links of both directions, or by the exact links; with the
                      links of both directions two models are trained, one per direction, and combined like the first two

Runs are kept in --work, and unfinished runs are resumed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alignment import Rule, Sets, both_directions, score_system, train_system, write_alignment
from peers.machine import machine_info

from heedful.data.gold import Gold, builtin_gold
from heedful.runs.recipes import find_recipe

RECIPE = "demo"
SIZES = {"train": 60_000, "valid": 500, "test": 1_000}
GUIDE = ("task.guided_alignment=0.3", "task.guided_layer=1")  # as in the recipe demo-guided

Row = dict[str, Any]


class Links(NamedTuple):
    """Files with the word links of the training text, in both directions."""

    there: Path
    back: Path


def prepare(folder: Path) -> dict[str, Gold]:
    """Write the corpus as text files."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {split: builtin_gold(split, count) for split, count in SIZES.items()}
    for split, gold in results.items():
        for language, side in (("en", "source"), ("it", "target")):
            lines = (getattr(pair, side) for pair in gold.pairs)
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return results


def on_files(folder: Path, languages: str, links: Path | None = None) -> str:
    """The recipe with these text files instead of the built-in corpus."""
    lines = [f'folder = "{folder}"', f"languages = {languages}"]
    if links is not None:
        lines.append(f'train = {{ folder = "{folder}", languages = {languages}, alignment = "{links}" }}')
    text = find_recipe(RECIPE).read_text(encoding="utf-8")
    return re.sub(r"builtin = true\ncounts = .*\n", lambda _: "".join(f"{line}\n" for line in lines), text)


def measure(work: Path, options: Sequence[str]) -> list[Row]:
    text = work / "text"
    corpus = prepare(text)
    sets = Sets(corpus["valid"], corpus["test"])

    def learn(name: str, languages: str = '["en", "it"]', links: Path | None = None, also: Sequence[str] = ()) -> Any:
        recipe = work / f"{name}.toml"
        recipe.write_text(on_files(text, languages, links), encoding="utf-8")
        return train_system(str(recipe), work / name, [*options, *also])

    def pair(name: str, runs: tuple[str, str], links: Links | None = None, also: Sequence[str] = ()) -> tuple[list[Row], Rule]:
        """The rows of a model for each direction and of both together, and their combined rule."""
        there = learn(runs[0], links=links and links.there, also=also)
        back = learn(runs[1], '["it", "en"]', links and links.back, also)
        together, rule = both_directions(there, back, sets)
        reverse = score_system(f"transformer, it-en{name}", back, Sets(sets.valid.swapped, sets.test.swapped))
        return [score_system(f"transformer{name}", there, sets), reverse, together | {"system": f"both directions{name}"}], rule

    rows, rule = pair("", ("forward", "backward"))
    results = Links(work / "found.align", work / "found-back.align")
    if not results.back.exists():
        links = list(rule(corpus["train"].pairs))
        write_alignment(results.there, links)
        write_alignment(results.back, ({(j, i) for i, j in one} for one in links))
    guided, _ = pair(", guided by both directions", ("guided", "guided-back"), results, GUIDE)
    exact = work / "exact.align"
    write_alignment(exact, (set(one.sure) for one in corpus["train"].alignments))
    guided_exact = learn("guided-by-exact-links", links=exact, also=GUIDE)
    return [*rows, *guided, score_system("transformer, guided by exact links", guided_exact, sets)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "builtin_alignment.json")
    parser.add_argument("--work", type=Path, default=Path("runs/builtin-alignment"), help="folder that keeps text and runs")
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    args = parser.parse_args(arguments)
    rows = measure(args.work.resolve(), args.also)
    args.output.write_text(json.dumps({"overrides": args.also, "rows": rows, **machine_info()}, indent=1) + "\n")
    for row in rows:
        print(f"{row['system']}: AER {row['aer']['value']:.1%}, on validation {row['valid_aer']:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
