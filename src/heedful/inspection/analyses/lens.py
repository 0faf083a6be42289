"""heed inspect RUN "a sentence" --lens: logit lens, the next-token predictions of each decoder layer.

token   layer 0      layer 1
0 Io    Io 0.41      Io 0.99
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.report.blocks import Block
    from heedful.tasks.predictor import Predictor

LEGEND = (
    "logit lens: each layer's most probable next token and its probability, computed with the model's own output "
    "layers; rank 1: most probable"
)


def compute(worker: Predictor, sentence: str, target: str | None = None, search: Sequence[str] = ()) -> dict[str, Any]:
    """Predictions of each layer for the model's translation, or for `target`; of a language model, for the sentence itself."""
    from heedful.inspection.analyses.interventions import encode_pair
    from heedful.inspection.measures.interventions import lens_of, target_tokens

    system, pair = worker.system, encode_pair(worker, sentence, target, search)
    lens = lens_of(system, pair)
    tokens = target_tokens(system, pair)
    final = lens.logits[-1].argmax(-1)  # (target time,)
    best = lens.logits.float().softmax(-1).max(-1)
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
                "final_rank": lens.ranks(final)[layer].tolist(),
                "final_probability": lens.probabilities(final)[layer].tolist(),
            }
            for layer, name in enumerate(lens.names)
        ],
    }


def format_text(result: dict[str, Any]) -> str:
    return f"{table(token_rows(result))}\n{LEGEND}"


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.analyses.sentence_figures import LENS_CAPTION, lens_figure
    from heedful.inspection.report.blocks import Pictures, Table, Words, sentence

    caption = f"{sentence('; '.join(LENS_CAPTION))}."
    return [
        Words(f"{sentence(LEGEND)}.", "hint"),
        Pictures([lens_figure(result)], caption),
        Table(token_rows(result), "prediction of each layer"),
    ]


def token_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    layers = result["layers"]
    names = (layer["name"].removesuffix(".out") for layer in layers)
    rows: list[tuple[str, ...]] = [("", "token", *names, "rank of the final prediction")]
    for position, token in enumerate(result["tokens"]):
        predicted = [f"{layer['predicted'][position]} {layer['probability'][position]:.2f}" for layer in layers]
        rows.append((str(position), token, *predicted, " ".join(str(layer["final_rank"][position]) for layer in layers)))
    return rows
