"""From a run to a smaller one: heads are taken out for good, and what is left is a run folder like any other.

    made = prune("runs/gated", "runs/small")                                    what its gates have closed
    made = prune("runs/any", "runs/small", Choice({"encoder": 6}, by="gradient"))    all but the six best

It translates, evaluates and goes on training. The optimiser begins anew; step, tokens seen and the place in the data are
those of the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful import build
from heedful.card import model_card
from heedful.config import Run, as_toml
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.inspection.importance import Surprise, ablations, gate_gradients, within_layer
from heedful.inspection.removal import Kept, best_heads, heads_left, open_heads, shrink
from heedful.nn.gates import gates
from heedful.running import refuse_strangers
from heedful.schema import plain
from heedful.studies.heads import added, losses_of
from heedful.tasks.batches import Batch, collate
from heedful.tasks.evaluating import Evaluation, evaluate
from heedful.tasks.translating import System, batches_of
from heedful.tasks.translation import TranslationConfig
from heedful.training import checkpoint, environment, retention, run_folder
from heedful.training.durable import replace_text
from heedful.training.journey import Journey

BATCH = 2**12  # tokens by which heads are ranked at once
LOOKS = ".look.weights"  # what ends the name of an attention's tap
RANKINGS: dict[str, Callable[[nn.Module, Surprise], dict[str, Tensor]]] = {"gradient": gate_gradients, "ablation": ablations}


@dataclass(frozen=True)
class Choice:
    """What stays: of each named kind so many heads, the best by a ranking over so many training sentences; of the others
    all. Without any kind: whatever gates have not closed."""

    keep: Mapping[str, int] = field(default_factory=dict)
    by: str = "gradient"
    sentences: int = 1000


class Pruned(NamedTuple):
    """What was made of a model."""

    run: Path
    heads: dict[str, tuple[int, ...]]  # that are left, by kind and layer
    heads_before: dict[str, tuple[int, ...]]
    parameters: int
    parameters_before: int
    figures: dict[str, float]  # on the validation data


@dataclass
class Made:
    """What its card is written from."""

    model: nn.Module
    task: Any
    journey: Journey


def prune(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    choice: Choice | None = None,
    *,
    which: str | None = None,
    device: str | None = None,
) -> Pruned:
    """Write a run folder `out` with fewer heads. Taken is the last checkpoint of a run with gates, which close as it goes
    on, and else the best; or the one that is named."""
    path, folder, choice = Path(run), Path(out), choice or Choice()
    refuse_strangers(folder)
    if retention.steps(folder / "checkpoints"):
        raise ConfigError(f"{folder} is a run already", hint="give the smaller one a folder of its own with --out")
    gated = bool(build.read_folder(path)[0].training.gates.penalty) if path.is_dir() else False
    translator = build.load_translator(path, which or ("last" if gated else None), device)
    system, config, model = translator.system, translator.run, translator.system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    before = config.model.heads_by_kind
    kept = choose(system, config, choice)
    left = heads_left(kept, before)
    smaller = without_heads(config, left)
    small = build.make_model(smaller, len(system.source_tokenizer), len(system.target_tokenizer))
    build.put_weights(small, {name: weight.cpu() for name, weight in shrink(model, kept).items()}, translator.checkpoint)
    small = small.to(system.device).eval()
    tokenizers = system.source_tokenizer, system.target_tokenizer
    examples = build.examples_of(splits_of(config.data).valid, config.data.max_ratio)
    judged, asked = build.make_system(smaller, [small], tokenizers, system.device), config.task
    assert isinstance(asked, TranslationConfig), "whoever loads a translator has a run of translation"
    found = evaluate(judged, examples, config.search, asked.validation_metrics, asked.validation_sentences)
    with run_folder.lock(folder):
        journey = Journey.from_dict(checkpoint.load_state(retention.resolve(path, "last"))["journey"])
        made = Made(small, build.task_of(smaller), journey)
        for name in ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"):
            if (path / name).exists():
                replace_text(folder / name, (path / name).read_text(encoding="utf-8"))
        origin = {"run": str(path), "checkpoint": translator.checkpoint.name, "heads": before, "left": left}
        run_folder.write_facts(folder, run_folder.read_facts(path) | {"pruned": origin})
        write(smaller, folder, made, found)
    return Pruned(folder, left, before, size(small), size(model), found.figures)


def choose(system: System, config: Run, choice: Choice) -> Kept:
    model = system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    if not choice.keep:
        if not gates(model):
            raise ConfigError(
                "the run has no gates that could say which heads go",
                hint="say how many to keep, --keep encoder=6, or train with training.gates.penalty",
            )
        return open_heads(model)
    for kind in choice.keep:
        lookup(kind, config.model.heads_by_kind, "kind of heads")
    score = lookup(choice.by, RANKINGS, "ranking")
    scores: dict[str, Tensor] = {}
    for batch in training_batches(system, config, choice.sentences):
        scores = added(scores, score(model, partial(losses_of, system, batch)))
    by_attention = {name.removesuffix(LOOKS): within_layer(one) for name, one in scores.items()}
    return best_heads(model, by_attention, choice.keep)


def training_batches(system: System, config: Run, sentences: int) -> Iterator[Batch]:
    """Of the first so many training pairs those that the model can read."""
    found = chain.from_iterable(pairs(corpus, max_ratio=config.data.max_ratio) for corpus in splits_of(config.data).train)
    some = list(islice(found, sentences))
    sources = system.source_tokenizer.encode_many([pair.source for pair in some])
    targets = system.target_tokenizer.encode_many([pair.target for pair in some])
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted((i for i, length in enumerate(lengths) if length <= system.max_length), key=lambda i: -lengths[i])
    specials = system.source_tokenizer.specials, system.target_tokenizer.specials
    for chosen in batches_of(order, lambda i: lengths[i], BATCH):
        yield collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)


def without_heads(config: Run, left: Mapping[str, tuple[int, ...]]) -> Run:
    """The config of the smaller run, which has no gates and begins with nobody's weights."""
    tree: dict[str, Any] = plain(config)
    tree["model"] |= config.model.with_heads(left)
    tree["training"] = {name: value for name, value in tree["training"].items() if name not in ("gates", "init")}
    return Run.model_validate(tree)


def write(config: Run, folder: Path, made: Made, found: Evaluation) -> None:
    """The folder as training would leave it."""
    made.journey.best = [(made.journey.step, found.figures[config.training.metric])]
    made.journey.stale, made.journey.guard = 0, {}
    weights = made.model.state_dict()
    tensors = {"model": weights, "optimiser": {}} | ({"average": weights} if config.training.average == "ema" else {})
    state = {
        "journey": made.journey.as_dict(),
        "metrics": found.figures,
        "signatures": {name: score.signature for name, score in found.scores.items()},
        "environment": environment.describe(),
    }
    replace_text(folder / "config.toml", as_toml(config))
    saved = checkpoint.save(folder / "checkpoints", made.journey.step, tensors, state)
    retention.point_best(folder / "checkpoints", saved.name)
    replace_text(folder / "README.md", model_card(config, folder, made))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
