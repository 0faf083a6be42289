"""A file from text to text: how fast, how well, and whether what is fast says the same as what is plain.

The file is the test set of a trained run. Hugging Face has the run's weights and tokenizer and takes sorted batches. Plain is
our own search in single precision with one sentence at a time and nothing captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.apart import apart
from peers.decoders import TYPES, search_together
from peers.decoding import decode
from peers.laps import Lap, alternate
from peers.weights import for_hugging_face

from heedful.build import Translator, examples_of, load
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.models.transformer import Transformer
from heedful.nn.precision import with_precision
from heedful.search import SearchConfig
from heedful.tasks.translate import Candidate, translate

TIE = 1e-4  # scores that differ by no more are alike
PRECISIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda": {"heedful": ("fp32", "bf16"), "hf": ("fp32", "bf16")},
    "cpu": {"heedful": ("fp32", "int8"), "hf": ("fp32",)},
}


class Task(NamedTuple):
    """The test set of a run, and how it is searched."""

    translator: Translator
    sources: list[str]
    references: list[str]
    config: SearchConfig


def task_of(run: Path, device: str) -> Task:
    translator = load(run, device=device)
    sources, references = examples_of(splits_of(translator.run.data).test, translator.run.data.max_ratio)
    return Task(
        translator, sources, references, translator.search_config(["method=beam", "beam=5", "penalty=power", "n_best=1"])
    )


def measure_file(
    run: Path, peers: Sequence[str], blocks: int, device: torch.device, *, every: int = 1
) -> tuple[dict[str, Lap[list[str]]], dict[str, Any]]:
    """What each system took, in a process of its own, and what came out. Of every how many sentences one is compared with
    the plain search."""
    makers = {
        f"{name} {precision}": partial(made, name, precision, run, device.type, torch.get_num_threads())
        for name, precisions in PRECISIONS[device.type].items()
        if name == "heedful" or name in peers
        for precision in precisions
    }
    with apart(makers) as systems:
        laps = alternate(systems, blocks=blocks)
        fast: list[Candidate] = systems["heedful fp32"]("with scores")
    task = task_of(run, device.type)
    found = {
        "run": run.name,
        "device": device.type,
        "apart": True,  # a process for each system
        "sentences": len(task.sources),
        "tokens": {name: count_tokens(task.translator, lap.answer) for name, lap in laps.items()},
        "bleu": {name: METRICS["bleu"](lap.answer, task.references).value for name, lap in laps.items()},
        "same_as_heedful_fp32": {name: share_of_equal(lap.answer, laps["heedful fp32"].answer) for name, lap in laps.items()},
        "plain": with_plain(task, fast, every),
    }
    return laps, found


def made(name: str, precision: str, run: Path, device: str, threads: int) -> Callable[..., Any]:
    torch.set_num_threads(threads)
    return {"heedful": by_us, "hf": by_hf}[name](task_of(run, device), precision)


def by_us(task: Task, precision: str) -> Callable[..., Any]:
    """Without a word: the lines."""
    whole = task.translator.system
    system = replace(whole, models=[with_precision(model_of(task.translator), precision, whole.device)], engines={})

    def call(asked: str = "") -> list[str] | list[Candidate]:
        best = [one.candidates[0] for one in translate(system, task.sources, task.config)]
        return best if asked == "with scores" else [one.text for one in best]

    return call


def by_hf(task: Task, precision: str) -> Callable[[], list[str]]:
    system, config = task.translator.system, task.config
    theirs = for_hugging_face(model_of(task.translator), system.target_tokenizer.specials).to(system.device, TYPES[precision])
    penalty, extra = config.length_penalty, config.max_extra
    return lambda: decode(theirs, system.target_tokenizer, task.sources, beam=config.beam, penalty=penalty, extra=extra)


def model_of(translator: Translator) -> Transformer:
    if not isinstance(translator.model, Transformer) or not translator.run.tokenizer.shared:
        raise SystemExit("the peers are Transformers with one vocabulary for both sides; expected a run of such a model")
    return translator.model


def count_tokens(translator: Translator, lines: list[str]) -> int:
    """As the tokenizer would write them, the end counted."""
    return sum(len(ids) + 1 for ids in translator.system.target_tokenizer.encode_many(lines))


def share_of_equal(lines: Sequence[str], others: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(lines, others, strict=True)) / len(lines)


def with_plain(task: Task, fast: Sequence[Candidate], every: int) -> dict[str, Any]:
    """One sentence at a time: how many came out the same, how many others are as good, and the rest."""
    system, model = task.translator.system, model_of(task.translator)
    encoded = system.source_tokenizer.encode_many(task.sources)
    whole = [i for i, ids in enumerate(encoded) if 0 < len(ids) <= system.max_length]  # those that are not split
    same, ties, different = 0, 0, []
    for i in whole[::every]:
        ((plain,),) = search_together(model, system.target_tokenizer.specials, [encoded[i]], task.config, device=system.device)
        if plain.tokens == fast[i].tokens:
            same += 1
        elif abs(plain.score - fast[i].score) <= TIE:
            ties += 1
        else:
            different.append({"line": i + 1, "fast": fast[i].score, "plain": plain.score})
    return {"compared": len(whole[::every]), "same": same, "ties": ties, "different": different}
