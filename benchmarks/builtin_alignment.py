"""Word alignment by attention on the built-in corpus, whose links are known exactly.

    python benchmarks/builtin_alignment.py --work runs/builtin-alignment       -> benchmarks/results/builtin_alignment.json

    transformer       the model of the recipe demo, by layer, and with heads and thresholds chosen on validation sentences
    both directions   with one that translates back, as in alignment.py
    guided            one head is taught links while the model learns: those that both directions found, or the exact ones

Runs are kept in --work: what was begun there is continued.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alignment import Sets, both_directions, judge, trained, write_alignment
from peers.machine import about_here

from heedful.data.gold import Gold, builtin_gold
from heedful.recipe_book import find_recipe

RECIPE = "demo"
SIZES = {"train": 60_000, "valid": 500, "test": 1_000}
GUIDE = ("task.guided_alignment=0.3", "task.guided_layer=1")  # as in the recipe demo-guided


def prepare(folder: Path) -> dict[str, Gold]:
    """The corpus as text, line by line."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {split: builtin_gold(split, count) for split, count in SIZES.items()}
    for split, gold in found.items():
        for language, side in (("en", "source"), ("it", "target")):
            lines = (getattr(pair, side) for pair in gold.pairs)
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return found


def on_files(folder: Path, languages: str, links: Path | None = None) -> str:
    """The recipe with this text in place of the built-in corpus."""
    lines = [f'folder = "{folder}"', f"languages = {languages}"]
    if links is not None:
        lines.append(f'train = {{ folder = "{folder}", languages = {languages}, alignment = "{links}" }}')
    text = find_recipe(RECIPE).read_text(encoding="utf-8")
    return re.sub(r"builtin = true\ncounts = .*\n", lambda _: "".join(f"{line}\n" for line in lines), text)


def measure(work: Path, options: Sequence[str]) -> list[dict[str, Any]]:
    text = work / "text"
    corpus = prepare(text)
    sets = Sets(corpus["valid"], corpus["test"])

    def learn(name: str, languages: str = '["en", "it"]', links: Path | None = None, also: Sequence[str] = ()) -> Any:
        recipe = work / f"{name}.toml"
        recipe.write_text(on_files(text, languages, links), encoding="utf-8")
        return trained(str(recipe), work / name, [*options, *also])

    there, back = learn("forward"), learn("backward", '["it", "en"]')
    rows = [judge("transformer", there, sets)]
    rows.append(judge("transformer, it-en", back, Sets(sets.valid.swapped, sets.test.swapped)))
    row, rule = both_directions(there, back, sets)
    rows.append(row)
    found, exact = work / "found.align", work / "exact.align"
    if not found.exists():
        write_alignment(found, rule(corpus["train"].pairs))
    write_alignment(exact, (set(one.sure) for one in corpus["train"].alignments))
    for name, links in (("guided by both directions", found), ("guided by exact links", exact)):
        guided = learn(name.replace(" ", "-"), links=links, also=GUIDE)
        rows.append(judge(f"transformer, {name}", guided, sets))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "builtin_alignment.json")
    parser.add_argument("--work", type=Path, default=Path("runs/builtin-alignment"), help="where text and runs are kept")
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    given = parser.parse_args(arguments)
    rows = measure(given.work.resolve(), given.also)
    given.output.write_text(json.dumps({"overrides": given.also, "rows": rows, **about_here()}, indent=1) + "\n")
    for row in rows:
        print(f"{row['system']}: AER {row['aer']['value']:.1%}, on validation {row['valid_aer']:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
