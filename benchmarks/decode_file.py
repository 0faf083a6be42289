"""A file from text to text: how fast, how well, and whether what is fast says the same as what is plain.

The file is the test set of a trained run. Hugging Face has the run's weights and tokenizer and takes sorted batches. Plain is
our own search in single precision with one sentence at a time and nothing captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.decoders import TYPES, search_together
from peers.decoding import decode
from peers.laps import Lap, alternate
from peers.weights import for_hugging_face

from heedful.build import Translator, examples_of, load
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.models.transformer import Transformer
from heedful.nn.precision import prepared
from heedful.search import SearchConfig
from heedful.tasks.translating import Candidate, translate

TIE = 1e-4  # scores that differ by no more are alike
PRECISIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda": {"heedful": ("fp32", "bf16"), "hf": ("fp32", "bf16")},
    "cpu": {"heedful": ("fp32", "int8"), "hf": ("fp32",)},
}


class Text(NamedTuple):
    """What a system made of the file."""

    lines: list[str]
    best: list[Candidate]  # ours only


def measure_file(
    run: Path, peers: Sequence[str], blocks: int, device: torch.device, *, every: int = 1
) -> tuple[dict[str, Lap[Text]], dict[str, Any]]:
    """What each system took, and what came out. Of every how many sentences one is compared with the plain search."""
    translator = load(run, device=device.type)
    sources, references = examples_of(splits_of(translator.run.data).test, translator.run.data.max_ratio)
    config = translator.search(["method=beam", "beam=5", "penalty=power", "n_best=1"])
    makers = {"heedful": by_us, "hf": by_hf}
    laps = alternate(
        {
            f"{name} {precision}": makers[name](translator, precision, sources, config)
            for name, precisions in PRECISIONS[device.type].items()
            if name == "heedful" or name in peers
            for precision in precisions
        },
        blocks=blocks,
    )
    found = {
        "run": run.name,
        "device": device.type,
        "sentences": len(sources),
        "tokens": {name: count_tokens(translator, lap.answer.lines) for name, lap in laps.items()},
        "bleu": {name: METRICS["bleu"](lap.answer.lines, references).value for name, lap in laps.items()},
        "same_as_heedful_fp32": {
            name: share_of_equal(lap.answer.lines, laps["heedful fp32"].answer.lines) for name, lap in laps.items()
        },
        "plain": with_plain(translator, sources, laps["heedful fp32"].answer.best, config, every),
    }
    return laps, found


def by_us(translator: Translator, precision: str, sources: Sequence[str], config: SearchConfig) -> Callable[[], Text]:
    device = translator.system.device
    system = replace(translator.system, models=[prepared(model_of(translator), precision, device)], engines={})

    def call() -> Text:
        best = [one.candidates[0] for one in translate(system, sources, config)]
        return Text([one.text for one in best], best)

    return call


def by_hf(translator: Translator, precision: str, sources: Sequence[str], config: SearchConfig) -> Callable[[], Text]:
    tokenizer = translator.system.target_tokenizer
    theirs = for_hugging_face(model_of(translator), tokenizer.specials).to(translator.system.device, TYPES[precision])

    def call() -> Text:
        penalty, extra = config.length_penalty, config.max_extra
        return Text(decode(theirs, tokenizer, sources, beam=config.beam, penalty=penalty, extra=extra), [])

    return call


def model_of(translator: Translator) -> Transformer:
    if not isinstance(translator.model, Transformer) or not translator.run.tokenizer.shared:
        raise SystemExit("the peers are Transformers with one vocabulary for both sides; expected a run of such a model")
    return translator.model


def count_tokens(translator: Translator, lines: list[str]) -> int:
    """As the tokenizer would write them, the end counted."""
    return sum(len(ids) + 1 for ids in translator.system.target_tokenizer.encode_many(lines))


def share_of_equal(lines: Sequence[str], others: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(lines, others, strict=True)) / len(lines)


def with_plain(
    translator: Translator, sources: Sequence[str], fast: Sequence[Candidate], config: SearchConfig, every: int
) -> dict[str, Any]:
    """One sentence at a time: how many came out the same, how many others are as good, and the rest."""
    system, model, specials = translator.system, model_of(translator), translator.system.target_tokenizer.specials
    encoded = system.source_tokenizer.encode_many(sources)
    whole = [i for i, ids in enumerate(encoded) if 0 < len(ids) <= system.max_length]  # those that are not split
    same, ties, different = 0, 0, []
    for i in whole[::every]:
        ((plain,),) = search_together(model, specials, [encoded[i]], config, device=system.device)
        if plain.tokens == fast[i].tokens:
            same += 1
        elif abs(plain.score - fast[i].score) <= TIE:
            ties += 1
        else:
            different.append({"line": i + 1, "fast": fast[i].score, "plain": plain.score})
    return {"compared": len(whole[::every]), "same": same, "ties": ties, "different": different}
