"""heed inspect RUN "a sentence" --lens: what the decoder would say if it stopped after each layer.

token   layer 0      layer 1
0 Io    Io 0.41      Io 0.99
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.report.blocks import Block
    from heedful.predictor import Predictor

MEANING = (
    "each layer's likeliest next token with its probability, read through the model's own last steps (logit lens); rank 1 "
    "is the likeliest"
)


def found(worker: Predictor, sentence: str, target: str | None = None, search: Sequence[str] = ()) -> dict[str, Any]:
    """Of the translation that the search finds, or of the given one; of a language model, of the sentence itself."""
    from heedful.cli.inspecting.interventions import pair_for
    from heedful.studies.interventions import lens_of, target_tokens

    system, pair = worker.system, pair_for(worker, sentence, target, search)
    seen = lens_of(system, pair)
    tokens = target_tokens(system, pair)
    final = seen.logits[-1].argmax(-1)  # (target time,)
    best = seen.logits.float().softmax(-1).max(-1)
    return {
        "source": None if pair.source is None else pair.source.text,
        "target": pair.target.text,
        "tokens": system.target_tokenizer.pieces(tokens.tolist()),
        "final": system.target_tokenizer.pieces(final.tolist()),
        "layers": [
            {
                "name": name,
                "predicted": system.target_tokenizer.pieces(best.indices[layer].tolist()),
                "probability": best.values[layer].tolist(),
                "final_rank": seen.ranks(final)[layer].tolist(),
                "final_probability": seen.probabilities(final)[layer].tolist(),
            }
            for layer, name in enumerate(seen.names)
        ],
    }


def as_text(found: dict[str, Any]) -> str:
    return f"{table(rows_of(found))}\n{MEANING}"


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.cli.inspecting.figures import ABOUT_LENS, lens_sketch
    from heedful.inspection.report.blocks import Pictures, Table, Words, sentence

    caption = f"{sentence('; '.join(ABOUT_LENS))}."
    return [
        Words(f"{sentence(MEANING)}.", "hint"),
        Pictures([lens_sketch(found)], caption),
        Table(rows_of(found), "what each layer would say"),
    ]


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    layers = found["layers"]
    names = (layer["name"].removesuffix(".out") for layer in layers)
    rows: list[tuple[str, ...]] = [("", "token", *names, "rank of the last layer's word")]
    for at, token in enumerate(found["tokens"]):
        said = [f"{layer['predicted'][at]} {layer['probability'][at]:.2f}" for layer in layers]
        rows.append((str(at), token, *said, " ".join(str(layer["final_rank"][at]) for layer in layers)))
    return rows
