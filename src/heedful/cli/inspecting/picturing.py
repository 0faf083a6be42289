"""heed inspect RUN "a sentence" --picture FILE: the alignment; with --kind the wall of its heads; with --head that map."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.inspecting.sentence import Where, chosen, maps_of, values_of

if TYPE_CHECKING:
    from heedful.inspection.sketch import Sketch
    from heedful.studies.reporting import Inspection

Spell = Callable[[str], str]


def draw(seen: Inspection, where: Where, path: Path, *, lines: bool) -> None:
    """As .svg, or through matplotlib as .png."""
    from heedful.errors import ConfigError

    try:
        if path.suffix == ".svg":
            from heedful.inspection.svg import as_svg

            path.write_text(as_svg(sketch_of(seen, where, lines, str)), encoding="utf-8")
        else:
            from heedful.inspection.plots import drawable, save_png

            save_png(sketch_of(seen, where, lines, drawable), path)
    except OSError as error:
        sentence = f"--picture: {path} cannot be written: {error.strerror}"
        raise ConfigError(sentence, hint="name a file in a folder that exists") from error


def sketch_of(seen: Inspection, where: Where, lines: bool, spell: Spell) -> Sketch:
    """spell: how a token is written, where not every letter can be drawn."""
    from heedful.inspection import sketch

    if where.kind is None:
        return alignment(seen, spell)
    if not where.one_map:
        maps = maps_of(seen, where)
        rolled = {one.name for one in seen.views.rollout}
        shown = [one for one in maps if where.by != "rollout" or one.name in rolled] or maps
        layers = [(one.layer, values_of(seen, one, where.by)) for one in shown]
        return sketch.wall(layers, f"{where.kind}: all heads, {where.by}", relative=where.by == "norms")
    one, (values, *_) = chosen(seen, where)
    rows, columns = ([spell(name) for name in names] for names in (seen.trace.queries(one), seen.trace.keys(one)))
    place = f"head {where.head}, {where.by}" if where.head is not None else "rollout"
    most = max(float(values.max()), 1e-12) if where.by == "norms" else 1.0
    return (sketch.lines if lines else sketch.heat_map)(
        values, rows, columns, f"{where.kind} · layer {one.layer} · {place}", most
    )


def alignment(seen: Inspection, spell: Spell) -> Sketch:
    import torch

    from heedful.errors import ConfigError
    from heedful.inspection.sketch import heat_map
    from heedful.studies.reporting import words_of

    source = seen.trace.source
    if source is None or not seen.views.words:
        raise ConfigError("there is no alignment to draw, as nothing is looked at in a source", hint="say which map: --kind")
    mean = torch.cat(list(seen.views.words.values())).mean(0)  # (target words, source words)
    rows, columns = ([spell(word) for word in words_of(side)] for side in (seen.trace.target, source))
    return heat_map(mean, rows, columns, "soft alignment, the mean over all heads", palette="grey")
