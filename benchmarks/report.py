"""Write docs/results.md and the headers of recipes from benchmarks/results.

python benchmarks/report.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from directions import gather, update_direction_recipes
from families_rows import update_family_recipes
from headers import update_recipes
from language_rows import update_language_recipes
from pruning_rows import update_pruning_recipe
from sections import RESULTS, ROOT, growth, inside, limits, read, retrieval, speed, systems
from sections.quality import quality

SECTIONS = (
    speed.training_gpu,
    speed.attention_kernels,
    speed.training_cpu,
    speed.decoding,
    quality,
    speed.first_good_model,
    systems.families,
    systems.directions,
    systems.language,
    retrieval.retrieval,
    retrieval.index,
    systems.claims,
    inside.alignment,
    inside.positions,
    inside.neighbors,
    inside.pruning,
    inside.listening,
    growth.scaling,
    growth.survival,
    limits.busy,
    limits.time_limit,
)


def update_headers() -> Iterator[str]:
    """Write the headers of all recipes; yield messages."""
    yield from update_recipes(RESULTS / "quality")
    yield from update_family_recipes(read("families.json"))
    yield from update_language_recipes(RESULTS / "language")
    yield from update_direction_recipes(gather(RESULTS / "families"))
    yield from update_pruning_recipe(inside.pruned_models())
    yield from retrieval.update_retrieval_recipes()


def main() -> None:
    written = "\n".join(text for section in SECTIONS if (text := section()))
    text = f"# Results\n\nWritten by `python benchmarks/report.py` from `benchmarks/results`.\n\n{written}"
    (ROOT / "docs" / "results.md").write_text(text)
    print(text)
    for message in update_headers():
        print(message, file=sys.stderr)


if __name__ == "__main__":
    main()
