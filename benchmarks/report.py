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
from sections import (
    RESULTS,
    ROOT,
    checks,
    dialogue,
    encoders,
    forecasts,
    growth,
    inside,
    limits,
    processes,
    quality,
    read,
    retrieval,
    serving,
    speed,
    systems,
)

PAGE = ROOT / "docs" / "results.md"
SECTIONS = (
    speed.training_gpu,
    speed.attention_kernels,
    speed.training_cpu,
    encoders.masked_training,
    encoders.vision_training,
    speed.decoding,
    serving.generation,
    serving.load,
    serving.soak,
    encoders.classification_cpu,
    quality.quality,
    quality.no_options,
    speed.first_good_model,
    systems.families,
    systems.directions,
    systems.language,
    encoders.labels,
    encoders.fashion_mnist,
    forecasts.forecasting,
    dialogue.chat,
    quality.starters,
    retrieval.retrieval,
    retrieval.index,
    systems.claims,
    systems.echo,
    inside.alignment,
    encoders.document_sentences,
    inside.positions,
    inside.neighbors,
    inside.pruning,
    inside.listening,
    growth.scaling,
    growth.survival,
    checks.faults,
    checks.planted,
    processes.preparation,
    processes.distributed,
    processes.plans,
    processes.bulk,
    processes.backtranslation,
    limits.busy,
    limits.time_limit,
    checks.texts,
)


def update_headers() -> Iterator[str]:
    """Write the headers of all recipes; yield messages."""
    yield from update_recipes(RESULTS / "quality")
    yield from update_family_recipes(read("families.json"))
    yield from update_language_recipes(RESULTS / "language")
    yield from update_direction_recipes(gather(RESULTS / "families"))
    yield from update_pruning_recipe(inside.pruned_models())
    yield from retrieval.update_retrieval_recipes()


def results_page() -> str:
    written = "\n".join(text for section in SECTIONS if (text := section()))
    return f"# Results\n\nWritten by `python benchmarks/report.py` from `benchmarks/results`.\n\n{written}"


def main() -> None:
    text = results_page()
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    for message in update_headers():
        print(message, file=sys.stderr)


if __name__ == "__main__":
    main()
