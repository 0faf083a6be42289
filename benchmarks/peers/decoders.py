"""Three decoders for one of our Transformers: our search, Hugging Face's `generate`, CTranslate2.

Each takes the model and returns a function from source ids to hypothesis ids; the search is configured by our SearchConfig.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from heedful.models.transformer import Transformer
from heedful.nn.precision import with_precision
from heedful.search import (
    Engines,
    GraphInputs,
    Hypothesis,
    SearchConfig,
    SourceBatch,
    States,
    length_limit,
    search,
    step_function,
)
from heedful.search import Sources as SearchSources
from heedful.tasks.batches import source_tensors
from heedful.text.specials import Specials
from peers.weights import for_ctranslate2, for_hugging_face

Sources = Sequence[Sequence[int]]  # ids without the end
Decoded = list[list[list[int]]]  # for each source its hypotheses, best first, as ids without the end
Decoder = Callable[[Sources, SearchConfig], Decoded]

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def heedful(model: Transformer, specials: Specials, precision: str, device: torch.device) -> Decoder:
    """Our search on all sources at once; on a GPU, CUDA graphs of the steps are reused for calls of the same shape."""
    ready = with_precision(model, precision, device)
    engines: Engines | None = {} if device.type == "cuda" else None

    def decode(sources: Sources, config: SearchConfig) -> Decoded:
        results = search_together(ready, specials, sources, config, device=device, engines=engines)
        return [[one.tokens for one in hypotheses] for hypotheses in results]

    return decode


@torch.inference_mode()
def search_together(
    model: Transformer,
    specials: Specials,
    sources: Sources,
    config: SearchConfig,
    *,
    device: torch.device,
    engines: Engines | None = None,
) -> list[list[Hypothesis]]:
    """Search for all sources at once, with CUDA graphs if there are engines to store them."""
    source, mask = source_tensors(sources, specials)
    if mask is None and engines is not None:
        mask = torch.ones_like(source, dtype=torch.bool)  # later sources may need one
    source, mask = source.to(device), None if mask is None else mask.to(device)
    limits = torch.tensor([length_limit(config, len(row), 0) for row in sources], device=device)

    def start(slots: int) -> States:
        return model.start(source, mask, room=slots)

    def placeholder_states(count: int, slots: int) -> States:
        return model.start(source[:count], None if mask is None else mask[:count], room=slots)

    together = SearchSources(
        lambda count, slots: SourceBatch(start(slots), limits, range(len(sources)), [[]] * len(sources)),
        capacity=len(sources),
        max_limit=int(limits.max()),
        graph=None if engines is None else GraphInputs(source.shape[1], placeholder_states, device),
    )
    predict = step_function(model)
    results = dict(search(predict, together, config, start=specials.start, end=specials.end, engines=engines))
    return [results[source_id] for source_id in range(len(sources))]


def hf(model: Transformer, specials: Specials, precision: str, device: torch.device) -> Decoder:
    from transformers import GenerationConfig

    theirs: Any = for_hugging_face(model, specials).to(device, TYPES[precision])

    @torch.inference_mode()
    def decode(sources: Sources, config: SearchConfig) -> Decoded:
        source, mask = source_tensors(sources, specials)
        attention_mask = torch.ones_like(source) if mask is None else mask.long()
        penalty = {"length_penalty": alpha(config)} if config.method == "beam" else {}
        generation = GenerationConfig(
            num_beams=config.rows, num_return_sequences=config.n_best, max_new_tokens=config.max_length, do_sample=False,
            pad_token_id=specials.pad, eos_token_id=specials.end, decoder_start_token_id=specials.start, **penalty,
        )  # fmt: skip
        output = theirs.generate(source.to(device), attention_mask=attention_mask.to(device), generation_config=generation)
        rows = [until_end(row[1:], specials.end) for row in output.tolist()]
        return [rows[at : at + config.n_best] for at in range(0, len(rows), config.n_best)]

    return decode


def until_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def ct2(model: Transformer, specials: Specials, precision: str, device: torch.device) -> Decoder:
    """CTranslate2 with torch's number of threads."""
    from ctranslate2 import Translator

    kind = {"fp32": "float32", "int8": "int8"}[precision]
    with tempfile.TemporaryDirectory() as folder:
        for_ctranslate2(model, specials, Path(folder))
        theirs = Translator(
            folder, device=device.type, compute_type=kind, intra_threads=torch.get_num_threads(), inter_threads=1
        )

    def decode(sources: Sources, config: SearchConfig) -> Decoded:
        results = theirs.translate_batch(
            [[str(token) for token in (*row, specials.end)] for row in sources], beam_size=config.rows,
            num_hypotheses=config.n_best, length_penalty=alpha(config), min_decoding_length=0,
            max_decoding_length=config.max_length,
        )  # fmt: skip
        return [[[int(token) for token in tokens] for tokens in one.hypotheses] for one in results]

    return decode


def alpha(config: SearchConfig) -> float:
    """The exponent of the peers' length penalty, length ^ alpha."""
    if config.method == "beam" and config.penalty != "power":
        raise SystemExit(f"the peers have no length penalty {config.penalty!r}; expected 'power'")
    return config.length_penalty if config.method == "beam" else 0.0


DECODERS: dict[str, Callable[[Transformer, Specials, str, torch.device], Decoder]] = {
    "heedful": heedful,
    "hf": hf,
    "ct2": ct2,
}
