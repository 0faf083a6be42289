"""One training step on one sentence, with the numbers of a trained model.

loss_t = -ln p(y_t | y_<t, x)          smoothed: -sum_v q_t(v) ln p_t(v)          weights <- weights - lr gradient
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor
from torch.nn import functional

from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage, check_softmax, matrix
from heedful.nn.losses import SMOOTHINGS, cross_entropy
from heedful.nn.model import Model, inference_context
from heedful.tasks.encoded_example import EncodedExample, TokenLoss, mark
from heedful.tasks.predictor import Predictor

TOP = 3  # tokens shown at each position
LEARNING_RATES = (1e-4, 1e-3, 1e-2)


def explain_step(predictor: Predictor, example: EncodedExample, loss: TokenLoss, own: bool = False) -> Explanation:
    """loss: of the run; own: the target of the example is the model's own output."""
    model = predictor.model
    with inference_context(model):
        logits = compute_logits(model, example)  # (outputs, choices)
    targets = example.outputs.pieces
    tokens = mark(example.start, example.target.pieces, example.end)
    inputs = [tokens[at] for at in example.outputs.steps.tolist()]
    probabilities = logits.double().softmax(-1)
    auxiliary = [f"adds the model's auxiliary loss '{name}'" for name in auxiliary_losses(model, example)]
    loss = loss._replace(omitted=[*loss.omitted, *auxiliary])
    rows = [list(row) for row in zip(inputs, targets, example.outputs.ids.tolist(), strict=True)]
    shifted = "Teacher forcing: the input is the target shifted right by one. "
    stages = [
        Stage(
            "Inputs and targets" if example.reads_end else "Decoder inputs and targets",
            "y_t = onehot(word_t)",
            [Matrix("t", [str(t + 1) for t in range(len(rows))], ["input", "target", "id"], rows)],
            f"{'' if example.reads_end else shifted}A one-hot target has {logits.shape[-1]:,} entries, 1 at the id and 0 "
            "elsewhere.",
        ),
        Stage(
            "Model outputs",
            "p_t = softmax(logits_t)",
            [top_predictions(example, probabilities)],
            "The most probable outputs at each position; all positions are computed in one forward pass.",
        ),
        loss_stage(example, logits),
    ]
    if loss.smoothing is not None:
        stages.append(smoothed_stage(predictor, example, logits, loss))
    stages.append(update_stage(predictor, example, loss))
    texts = [
        text for text in (None if example.source is None else example.source.text, example.target.text) if text is not None
    ]
    texts += [] if example.label is None else [example.label]
    opening = " -> ".join(f"'{text}'" for text in texts)
    opening += " (the model's own output; set another one with --target)." if own else "."
    return Explanation("One training step", opening, stages)


def compute_logits(model: Model, example: EncodedExample) -> Tensor:
    """Logits of the outputs, (outputs, choices)."""
    return example.logits(model, example.forward(model).hidden)[0].float()


def top_predictions(example: EncodedExample, probabilities: Tensor) -> Matrix:
    """The most probable choices of each output. probabilities (outputs, choices)."""
    top = probabilities.topk(min(TOP, probabilities.shape[-1]))
    cells: list[list[str | float]] = []
    for values, ids in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        cells.append([cell for pair in zip(example.outputs.spell(ids), values, strict=True) for cell in pair])
    columns = [name for rank in range(1, len(cells[0]) // 2 + 1) for name in (f"token {rank}", f"p {rank}")]
    return Matrix("target", example.outputs.pieces, columns, cells)


def loss_stage(example: EncodedExample, logits: Tensor) -> Stage:
    targets, ids = example.outputs.pieces, example.outputs.ids[:, None]
    probabilities = logits.double().softmax(-1)
    p = probabilities.gather(-1, ids)[:, 0]  # (outputs,)
    ranks = (probabilities > p[:, None]).sum(-1) + 1
    losses = -p.log()
    total, count = float(losses.sum()), len(targets)
    cells = [list(row) for row in zip(p.tolist(), ranks.tolist(), losses.tolist(), strict=True)]
    unit, padded = "output" if example.reads_end else "target token, including the end token", count + 3
    scored = logits.log_softmax(-1).gather(-1, ids)[:, 0]
    return Stage(
        "Loss",
        "loss_t = -ln p_t(y_t) , perplexity = exp(mean)",
        [
            Matrix("target", targets, ["p", "rank", "−ln p"], cells),
            Matrix(
                "loss", [f"{count} tokens"], ["sum", "mean", "perplexity"], [[total, total / count, math.exp(total / count)]]
            ),
        ],
        f"The cross-entropy of each {unit}. The rank is 1 where no other is more probable.",
        [
            Mistake(
                f"dividing by a padded length, {padded}, instead of {count}",
                [Matrix("loss", [f"{padded} positions"], ["mean"], [[total / padded]])],
                "padding adds nothing to the sum: the mean would fall as the longest sentence of the batch grows.",
            )
        ],
        [check_softmax("ln p of each token", -losses, scored, logits)],
    )


def smoothed_stage(predictor: Predictor, example: EncodedExample, logits: Tensor, loss: TokenLoss) -> Stage:
    """Computed in double precision and compared with the training loss."""
    pad, vocab = predictor.system.target_tokenizer.specials.pad, logits.shape[-1]
    target, amount = example.outputs.ids, loss.smoothing or 0.0
    logs = logits.double().log_softmax(-1)
    totals = []
    for share in SMOOTHINGS:
        smoothed = SMOOTHINGS[share](amount, vocab)
        q = torch.full_like(logs, smoothed.other)
        q[:, pad] = smoothed.padding
        q[torch.arange(len(target)), target] = smoothed.true
        totals.append(-(q * logs).sum())
    ours = totals[list(SMOOTHINGS).index(loss.share)]
    minimized, _ = cross_entropy(logits, target, padding=pad, smoothing=amount, share=loss.share)
    name = "the token-level part of the training loss" if loss.omitted else "the training loss"
    means = ours / len(target), minimized.total / minimized.count
    values = torch.stack(totals)[:, None]
    return Stage(
        "Label smoothing",
        f"loss_t = -sum_v q_t(v) ln p_t(v) , epsilon = {amount:g}",
        [matrix("ε spread over", list(SMOOTHINGS), ["sum", "mean"], torch.cat((values, values / len(target)), dim=-1))],
        f"Probability ε is moved away from the true token. This run spreads it over '{loss.share}'; the other rows are "
        f"the loss of the same outputs under the other conventions.{omission_note(loss)}",
        checks=[check_softmax(f"{name} (mean)", *means, logits)],
    )


def auxiliary_losses(model: Model, example: EncodedExample) -> list[str]:
    """Names of the losses that the model itself adds in training."""
    trained = copy.deepcopy(model)
    with torch.no_grad():
        trained.train()
        return list(example.forward(trained).losses)


def update_stage(predictor: Predictor, example: EncodedExample, loss: TokenLoss) -> Stage:
    """Gradient descent on the training loss of the run, on a copy of the model."""
    model = copy.deepcopy(predictor.model)
    model.eval()
    target, pad = example.outputs.ids.clone(), predictor.system.target_tokenizer.specials.pad

    def mean_loss() -> Tensor:
        logits = compute_logits(model, example)  # (outputs, choices)
        if loss.smoothing is None:
            return functional.cross_entropy(logits, target)
        smoothed, _ = cross_entropy(logits, target, padding=pad, smoothing=loss.smoothing, share=loss.share)
        return smoothed.total / smoothed.count

    with torch.enable_grad():
        before = mean_loss()
        before.backward()  # type: ignore[no-untyped-call]
    gradients = [(weight, weight.grad) for weight in model.parameters() if weight.grad is not None]
    norm = math.sqrt(sum(float(gradient.double().square().sum()) for _, gradient in gradients))
    value, previous = before.item(), 0.0
    cells = [[previous, value, value]]
    with torch.no_grad():
        for learning_rate in LEARNING_RATES:
            for weight, gradient in gradients:
                weight.sub_(gradient, alpha=learning_rate - previous)
            previous, after = learning_rate, float(mean_loss())
            cells.append([learning_rate, after, value - learning_rate * norm**2])
    rows = ["before", *("after one step" for _ in LEARNING_RATES)]
    return Stage(
        "One gradient step",
        "theta -> theta - lr g , loss(theta - lr g) = loss - lr norm(g)^2 + …",
        [
            Matrix("weights", rows, ["learning rate", "mean loss", "first-order estimate"], cells, form=".6f"),
            Matrix("gradient", ["all weights"], ["norm"], [[norm]]),
        ],
        f"Every weight moves against the gradient of {describe_loss(loss)} (plain gradient descent, without dropout, on a "
        "copy of the model). For a small step the loss falls as the first-order estimate predicts; for a larger step "
        f"curvature matters.{omission_note(loss)}",
    )


def describe_loss(loss: TokenLoss) -> str:
    return f"the smoothed loss, ε = {loss.smoothing:g} over '{loss.share}'" if loss.smoothing else "the loss"


def omission_note(loss: TokenLoss) -> str:
    return f" Training also {', and '.join(loss.omitted)}; this is omitted here." if loss.omitted else ""
