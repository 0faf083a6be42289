"""One training step on one sentence, by a trained model's own numbers.

loss_t = -ln p(y_t | y_<t, x)          smoothed: -sum_v q_t(v) ln p_t(v)          weights <- weights - rate d loss
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import forced
from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage, check_softmax, matrix
from heedful.nn.losses import SMOOTHINGS, cross_entropy
from heedful.search import SearchConfig
from heedful.tasks.batches import Batch, collate
from heedful.tasks.evaluate_translations import token_scores
from heedful.tasks.translate import System, translate
from heedful.tasks.translation import TranslationConfig

TOP = 3  # words shown at each place
RATES = (1e-4, 1e-3, 1e-2)


class Smoothing(NamedTuple):
    amount: float
    share: str  # all, others or words: see nn/losses.py
    besides: Sequence[str] = ()  # what training does to this loss that is left out here

    @property
    def left_out(self) -> str:
        return f" Training {', and '.join(self.besides)}; that is left out here." if self.besides else ""


def smoothing_of(task: TranslationConfig) -> Smoothing:
    """As a run trains, and what else it minimizes."""
    besides = []
    if task.r_drop:
        besides.append(f"adds {task.r_drop / 2:g} x the disagreement of two passes under dropout (R-Drop)")
    if task.guided_alignment:
        besides.append(f"adds {task.guided_alignment:g} x the loss of guided alignment")
    if task.sequence.method != "none":
        weight = f"weighs it by {task.sequence.cross_entropy_weight:g} and adds"
        besides.append(f"{weight} the loss of sentences that the model says itself (task.sequence, {task.sequence.method})")
    return Smoothing(task.label_smoothing, task.smoothing_over, besides)


def explain_step(
    system: System, source: str, smoothing: Smoothing, config: SearchConfig, target: str | None = None
) -> Explanation:
    """target: what the sentence should become; what the model itself makes of it unless given."""
    own = target is None
    said = next(translate(system, [source], config)).text if target is None else target
    reader, writer = system.source_tokenizer, system.target_tokenizer
    batch = collate([reader.encode(source)], [writer.encode(said)], reader.specials, writer.specials).to(system.device)
    with forced_first(system):
        logits = logits_of(system.models[0], batch)[0]  # (target time, vocab)
    fed, wanted = (writer.pieces(row[0].tolist()) for row in (batch.target_in, batch.target_out))
    probabilities = logits.double().softmax(-1)
    more = wanted_besides(system, batch)
    smoothing = smoothing._replace(besides=[*smoothing.besides, *(f"adds the model's own loss '{name}'" for name in more)])
    stages = [
        Stage(
            "What is fed, and what should be said",
            "y_t = onehot(word_t)",
            [Matrix("t", places(wanted), ["fed", "to say", "id"], rows_of(fed, wanted, batch.target_out[0].tolist()))],
            f"The target shifted by one. A one-hot target has {logits.shape[-1]:,} numbers, a 1 at the id and 0 elsewhere.",
        ),
        Stage(
            "What the model says",
            "p_t = softmax(logits_t)",
            [likeliest(system, probabilities, wanted)],
            "The likeliest words at each place, and their probabilities; all places are computed in one pass.",
        ),
        loss_stage(system, batch, logits, wanted),
        smoothed_stage(system, batch, logits, smoothing),
        update_stage(system, batch, smoothing),
    ]
    opening = f"'{source}' -> '{said}'" + (" (the model's own translation; --target gives another)." if own else ".")
    return Explanation("One training step", opening, stages)


def forced_first(system: System) -> Any:
    model = system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    return forced(model)


def logits_of(model: Any, batch: Batch) -> Tensor:
    logits: Tensor = model.project(model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0)).hidden)
    return logits.float()


def places(wanted: list[str]) -> list[str]:
    return [str(place) for place in range(1, len(wanted) + 1)]


def rows_of(fed: list[str], wanted: list[str], ids: list[int]) -> list[list[str | int]]:
    return [[before, after, id] for before, after, id in zip(fed, wanted, ids, strict=True)]


def likeliest(system: System, probabilities: Tensor, wanted: list[str]) -> Matrix:
    top = probabilities.topk(min(TOP, probabilities.shape[-1]))
    cells: list[list[str | float]] = []
    for values, ids in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        words = system.target_tokenizer.pieces(ids)
        cells.append([cell for pair in zip(words, values, strict=True) for cell in pair])
    columns = [name for rank in range(1, len(cells[0]) // 2 + 1) for name in (f"word {rank}", f"p {rank}")]
    return Matrix("to say", wanted, columns, cells)


def loss_stage(system: System, batch: Batch, logits: Tensor, wanted: list[str]) -> Stage:
    probabilities = logits.double().softmax(-1)
    chance = probabilities.gather(-1, batch.target_out[0][:, None])[:, 0]  # (target time,)
    better = (probabilities > chance[:, None]).sum(-1) + 1
    surprise = -chance.log()
    total, count = float(surprise.sum()), len(wanted)
    cells = [[p, int(rank), loss] for p, rank, loss in zip(chance.tolist(), better.tolist(), surprise.tolist(), strict=True)]
    padded = count + 3
    scored = token_scores(replace(system, models=system.models[:1]), batch)[0]
    return Stage(
        "Loss",
        "loss_t = -ln p_t(y_t) , perplexity = exp(mean)",
        [
            Matrix("to say", wanted, ["p", "rank", "−ln p"], cells),
            Matrix(
                "loss", [f"{count} tokens"], ["sum", "mean", "perplexity"], [[total, total / count, math.exp(total / count)]]
            ),
        ],
        "How surprised the model is by each right word, the end counted; the rank is 1 where no word was likelier.",
        [
            Mistake(
                f"dividing by a padded length, {padded}, instead of {count}",
                [Matrix("loss", [f"{padded} places"], ["mean"], [[total / padded]])],
                "padding costs nothing: the loss would fall with the longest sentence of the batch.",
            )
        ],
        [check_softmax("ln p of each token", -surprise, scored, logits)],
    )


def smoothed_stage(system: System, batch: Batch, logits: Tensor, smoothing: Smoothing) -> Stage:
    """By hand in double precision, beside the loss that training minimizes."""
    pad, vocab = system.target_tokenizer.specials.pad, logits.shape[-1]
    target = batch.target_out[0]
    logs = logits.double().log_softmax(-1)
    totals = []
    for share in SMOOTHINGS:
        wish = SMOOTHINGS[share](smoothing.amount, vocab)
        q = torch.full_like(logs, wish.other)
        q[:, pad] = wish.padding
        q[torch.arange(len(target)), target] = wish.true
        totals.append(-(q * logs).sum())
    ours = totals[list(SMOOTHINGS).index(smoothing.share)]
    minimized, _ = cross_entropy(logits, target, padding=pad, smoothing=smoothing.amount, share=smoothing.share)
    named = "the part of the loss that comes from tokens" if smoothing.besides else "the loss that training minimizes"
    means = ours / len(target), minimized.total / minimized.count
    values = torch.stack(totals)[:, None]
    return Stage(
        "Label smoothing",
        f"loss_t = -sum_v q_t(v) ln p_t(v) , epsilon = {smoothing.amount:g}",
        [matrix("shared among", list(SMOOTHINGS), ["sum", "mean"], torch.cat((values, values / len(target)), dim=-1))],
        f"The true word gives up ε. This run shares it among '{smoothing.share}'; the other two are what the same outputs "
        f"would cost under the other conventions.{smoothing.left_out}",
        checks=[check_softmax(f"{named}, its mean,", *means, logits)],
    )


def wanted_besides(system: System, batch: Batch) -> list[str]:
    """What the model itself wants minimized while it is trained, by name."""
    model: Any = copy.deepcopy(system.models[0])
    with torch.no_grad():
        model.train()
        return list(model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0)).losses)


def update_stage(system: System, batch: Batch, smoothing: Smoothing) -> Stage:
    """Gradient descent on a copy, down the loss that the run trains by; the model stays as it is."""
    model = copy.deepcopy(system.models[0])
    assert isinstance(model, nn.Module), "models are modules"
    model.eval()
    target, pad = batch.target_out.flatten(), system.target_tokenizer.specials.pad

    def mean_loss() -> Tensor:
        logits = logits_of(model, batch).flatten(0, 1)  # (target time, vocab)
        smoothed, _ = cross_entropy(logits, target, padding=pad, smoothing=smoothing.amount, share=smoothing.share)
        return smoothed.total / smoothed.count

    with torch.enable_grad():
        before = mean_loss()
        before.backward()  # type: ignore[no-untyped-call]
    slopes = [(weight, weight.grad) for weight in model.parameters() if weight.grad is not None]
    length = math.sqrt(sum(float(slope.double().square().sum()) for _, slope in slopes))
    loss, gone = before.item(), 0.0
    cells = [[gone, loss, loss]]
    with torch.no_grad():
        for rate in RATES:
            for weight, slope in slopes:
                weight.sub_(slope, alpha=rate - gone)
            gone, after = rate, float(mean_loss())
            cells.append([rate, after, loss - rate * length**2])
    rows = ["before", *("after a step" for _ in RATES)]
    return Stage(
        "One step down the slope",
        "theta -> theta - rate g , loss(theta - rate g) = loss - rate norm(g)^2 + …",
        [
            Matrix("weights", rows, ["rate", "mean loss", "as the slope foretells"], cells, form=".6f"),
            Matrix("slope", ["all weights"], ["norm"], [[length]]),
        ],
        f"Every weight moves a little against the slope of {descended(smoothing)} (plain gradient descent, without "
        "dropout, on a copy of the model). For a small step the loss falls as the slope foretells; for a larger one the ground "
        f"bends.{smoothing.left_out}",
    )


def descended(smoothing: Smoothing) -> str:
    return f"the smoothed loss, ε = {smoothing.amount:g} among '{smoothing.share}'" if smoothing.amount else "the loss"
