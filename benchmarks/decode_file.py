"""Translating a file from text to text: speed, BLEU, and whether the fast search equals the plain one.

The file is the test set of a trained run. Hugging Face uses the run's weights and tokenizer and sorted batches. The plain
search is ours in fp32, one sentence at a time, without CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.decoders import TYPES, search_together
from peers.decoding import decode
from peers.laps import Lap, alternate
from peers.processes import in_processes
from peers.weights import for_hugging_face

from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.models.transformer import Transformer
from heedful.nn.precision import with_precision
from heedful.search import SearchConfig
from heedful.tasks.translation.data import examples_of
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import Candidate, translate

TIE = 1e-4  # scores that differ by less are ties
PRECISIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda": {"heedful": ("fp32", "bf16"), "hf": ("fp32", "bf16")},
    "cpu": {"heedful": ("fp32", "int8"), "hf": ("fp32",)},
}


class Task(NamedTuple):
    """The test set of a run and its search config."""

    translator: Translator
    sources: list[str]
    references: list[str]
    config: SearchConfig


def task_of(run: Path, device: str) -> Task:
    translator = Translator.load(run, device=device)
    sources, references = examples_of(splits_of(translator.run.data).test, translator.run.data.max_ratio)
    return Task(
        translator, sources, references, translator.search_config(["method=beam", "beam=5", "penalty=power", "n_best=1"])
    )


def measure_file(
    run: Path, peers: Sequence[str], blocks: int, device: torch.device, *, every: int = 1
) -> tuple[dict[str, Lap[list[str]]], dict[str, Any]]:
    """The timings of each system, in its own process, and its results. every: compare every N-th sentence with the plain
    search."""
    makers = {
        f"{name} {precision}": partial(make_system, name, precision, run, device.type, torch.get_num_threads())
        for name, precisions in PRECISIONS[device.type].items()
        if name == "heedful" or name in peers
        for precision in precisions
    }
    with in_processes(makers) as systems:
        laps = alternate(systems, blocks=blocks)
        fast: list[Candidate] = systems["heedful fp32"]("with scores")
    task = task_of(run, device.type)
    results = {
        "run": run.name,
        "device": device.type,
        "apart": True,  # one process per system
        "sentences": len(task.sources),
        "tokens": {name: count_tokens(task.translator, lap.answer) for name, lap in laps.items()},
        "bleu": {name: METRICS["bleu"](lap.answer, task.references).value for name, lap in laps.items()},
        "same_as_heedful_fp32": {name: share_of_equal(lap.answer, laps["heedful fp32"].answer) for name, lap in laps.items()},
        "plain": with_plain(task, fast, every),
    }
    return laps, results


def make_system(name: str, precision: str, run: Path, device: str, threads: int) -> Callable[..., Any]:
    torch.set_num_threads(threads)
    return {"heedful": by_us, "hf": by_hf}[name](task_of(run, device), precision)


def by_us(task: Task, precision: str) -> Callable[..., Any]:
    """A function that returns translations, or candidates if called with "with scores"."""
    full = task.translator.system
    system = replace(full, models=[with_precision(model_of(task.translator), precision, full.device)], engines={})

    def call(mode: str = "") -> list[str] | list[Candidate]:
        best = [one.candidates[0] for one in translate(system, task.sources, task.config)]
        return best if mode == "with scores" else [one.text for one in best]

    return call


def by_hf(task: Task, precision: str) -> Callable[[], list[str]]:
    system, config = task.translator.system, task.config
    theirs = for_hugging_face(model_of(task.translator), system.target_tokenizer.specials).to(system.device, TYPES[precision])
    penalty, extra = config.length_penalty, config.max_extra
    return lambda: decode(theirs, system.target_tokenizer, task.sources, beam=config.beam, penalty=penalty, extra=extra)


def model_of(translator: Translator) -> Transformer:
    if not isinstance(translator.model, Transformer) or not translator.run.tokenizer.shared:
        raise SystemExit("the peers are Transformers with a shared vocabulary; expected a run of such a model")
    return translator.model


def count_tokens(translator: Translator, lines: list[str]) -> int:
    """The number of tokens, including end tokens."""
    return sum(len(ids) + 1 for ids in translator.system.target_tokenizer.encode_many(lines))


def share_of_equal(lines: Sequence[str], others: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(lines, others, strict=True)) / len(lines)


def with_plain(task: Task, fast: Sequence[Candidate], every: int) -> dict[str, Any]:
    """Compare with the plain search: equal translations, ties in score, and differences."""
    system, model = task.translator.system, model_of(task.translator)
    encoded = system.source_tokenizer.encode_many(task.sources)
    complete = [i for i, ids in enumerate(encoded) if 0 < len(ids) <= system.max_length]  # not split into pieces
    same, ties, different = 0, 0, []
    for i in complete[::every]:
        ((plain,),) = search_together(model, system.target_tokenizer.specials, [encoded[i]], task.config, device=system.device)
        if plain.tokens == fast[i].tokens:
            same += 1
        elif abs(plain.score - fast[i].score) <= TIE:
            ties += 1
        else:
            different.append({"line": i + 1, "fast": fast[i].score, "plain": plain.score})
    return {"compared": len(complete[::every]), "same": same, "ties": ties, "different": different}
