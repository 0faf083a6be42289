"""Training by hand: the loss of one sentence, and the learning rate schedule.

loss = -sum_t ln p(y_t | y_<t, x)                    smoothed: -sum_t sum_v q_t(v) ln p_t(v)
lr = d^-0.5 min(s^-0.5, s w^-1.5)                    (Vaswani et al., 2017)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage, matrix, with_sum
from heedful.nn.losses import SMOOTHINGS, cross_entropy
from heedful.training.schedules import ScheduleConfig, noam

WORDS = ["alla", "sono", "io", "doccia", "moda", "<eos>"]
TARGETS = [2, 1, 0, 4, 5]  # io sono alla moda <eos>
TARGET_WORDS = [WORDS[word] for word in TARGETS]
UNNORMALIZED = torch.tensor(
    [
        [0.01, 0.02, 0.93, 0.01, 0.03, 0.01],
        [0.01, 0.8, 0.1, 0.05, 0.01, 0.03],
        [0.99, 0.001, 0.001, 0.001, 0.002, 0.001],
        [0.001, 0.002, 0.001, 0.02, 0.94, 0.01],
        [0.01, 0.01, 0.001, 0.001, 0.001, 0.98],
    ],
    dtype=torch.float64,
)  # (5 steps, 6 words), handwritten; not all rows sum to 1
OUTPUTS = UNNORMALIZED / UNNORMALIZED.sum(-1, keepdim=True)
SMOOTHING = 0.1


def loss() -> Explanation:
    one_hot = torch.nn.functional.one_hot(torch.tensor(TARGETS), len(WORDS))
    losses = torch.stack((target_probabilities(OUTPUTS), token_losses(OUTPUTS)), dim=-1)
    stages = [
        Stage(
            "Targets",
            "y_t = onehot(word_t)",
            [matrix("target", TARGET_WORDS, WORDS, one_hot)],
            "Each step has one correct word; the end token is one of them. The decoder's input is the reference prefix "
            "(teacher forcing), so all steps are computed in parallel.",
        ),
        Stage(
            "Model outputs",
            "p_t = softmax(logits_t)",
            [with_sum(matrix("p", TARGET_WORDS, WORDS, OUTPUTS, shaded=True))],
            "A probability for every word of the vocabulary at every step. Here the most probable word is correct in each row.",
            [not_normalized()],
        ),
        Stage(
            "Loss per token",
            "loss_t = -y_t * ln p_t = -ln p_t(y_t)",
            [matrix("t", TARGET_WORDS, ["p", "−ln p"], losses)],
            "Cross-entropy. The target is 0 everywhere except at one word, so the sum over the vocabulary reduces to one "
            "logarithm: 0 if the correct word has probability 1, and large if it has a small one.",
        ),
        Stage(
            "Loss of the sentence",
            "total = sum_t loss_t , mean = frac(total, n) , perplexity = exp(mean)",
            [loss_summary("loss", OUTPUTS)],
            "The sum is the negative log-probability of the whole sentence. The mean per token can be compared across "
            "sentences. Its exponential, the perplexity, is the number of equally probable words that would give the same "
            "loss.",
            [counting_padding(), mean_of_inverses()],
        ),
        label_smoothing(),
    ]
    opening = "One training example, 'I am trendy' -> 'io sono alla moda', with a vocabulary of six words."
    return Explanation("Loss: cross-entropy, perplexity and label smoothing", opening, stages)


def target_probabilities(outputs: Tensor) -> Tensor:
    return outputs[range(len(TARGETS)), TARGETS]  # (5,)


def token_losses(outputs: Tensor) -> Tensor:
    return -target_probabilities(outputs).log()


def loss_summary(name: str, outputs: Tensor) -> Matrix:
    total = float(token_losses(outputs).sum())
    mean = total / len(TARGETS)
    columns = ["sum", "mean", "perplexity", "product of p"]
    return Matrix(name, ["5 tokens"], columns, [[total, mean, math.exp(mean), math.exp(-total)]])


def label_smoothing() -> Stage:
    target, columns = torch.tensor(TARGETS), ["true word", "any other", "padding", "sum of losses"]
    rows: list[list[float | None]] = []
    for share in SMOOTHINGS:
        q = SMOOTHINGS[share](SMOOTHING, len(WORDS))
        smoothed = cross_entropy(OUTPUTS.log(), target, padding=-1, smoothing=SMOOTHING, share=share)[0]
        rows.append([*q, None if share == "words" else float(smoothed.total)])
    return Stage(
        "Label smoothing",
        "loss_t = -sum_v q_t(v) ln p_t(v) , epsilon = 0.1",
        [Matrix("ε spread over", ["all: ε/V", "others: ε/(V−1)", "words: ε/(V−2)"], columns, rows)],
        "The target distribution moves probability ε away from the true word, so that the model does not become overconfident. "
        "Three conventions are in use, and their losses cannot be compared: ε is spread over all words, over all words but the "
        "true one, or over all but the true one and padding (which this vocabulary does not have). Compare models by the loss "
        "without smoothing.",
    )


def not_normalized() -> Mistake:
    return Mistake(
        "using outputs as probabilities that do not sum to 1",
        [with_sum(matrix("p", TARGET_WORDS, WORDS, UNNORMALIZED)), loss_summary("loss", UNNORMALIZED)],
        "a softmax never returns rows that sum to 1.01 or 0.974, and their loss is not a cross-entropy.",
    )


def counting_padding() -> Mistake:
    total, positions = float(token_losses(OUTPUTS).sum()), 8
    mean = total / positions
    return Mistake(
        f"dividing by the padded length, {positions}, instead of the 5 real tokens",
        [Matrix("loss", [f"{positions} positions"], ["mean", "perplexity"], [[mean, math.exp(mean)]])],
        "padding adds nothing to the sum: the mean would fall as the longest sentence of the batch grows.",
    )


def mean_of_inverses() -> Mistake:
    mean = float((1 / target_probabilities(OUTPUTS)).mean())
    return Mistake(
        "computing the perplexity as the mean of 1/p",
        [Matrix("perplexity", ["mean of 1/p"], ["value"], [[mean]])],
        "perplexity is the exponential of the mean of -ln p. In a mean of 1/p, one word with p = 0.001 would "
        "outweigh all others.",
    )


def schedule() -> Explanation:
    steps, sizes, warmup = [1, 100, 1000, 4000, 16_000, 100_000], [512, 1024], 4000
    config = ScheduleConfig(name="noam", warmup=warmup)
    names = [f"{step:,}" for step in steps]
    rates = [[noam(step, config, steps[-1], size) for size in sizes] for step in steps]
    columns = [f"d = {size}" for size in sizes]
    stages = [
        Stage(
            "Warm-up, then decay",
            "lr = d^-0.5 min(s^-0.5, s w^-1.5) , w = 4000",
            [Matrix("step s", names, columns, rates, form=".4e")],
            "Adam's moment estimates are poor at first and large steps can diverge, so the learning rate rises linearly for w "
            "warm-up steps; then it decays with the inverse square root of the step. Larger models get a "
            "smaller learning rate.",
            [no_warmup(steps, config), wrong_power(steps, warmup)],
        ),
        Stage(
            "The peak",
            "lr_w = frac(1, sqrt(d w))",
            [Matrix("peak", [f"{warmup:,}"], columns, [[1 / math.sqrt(size * warmup) for size in sizes]], form=".4e")],
            "Both branches meet at step w, where s^-0.5 and s w^-1.5 are equal; this is the largest learning rate.",
        ),
    ]
    opening = "The schedule of 'Attention Is All You Need'."
    return Explanation("Learning rate schedule: warm-up and inverse square root decay", opening, stages)


def no_warmup(steps: list[int], config: ScheduleConfig) -> Mistake:
    rates = [[1 / math.sqrt(512 * step)] for step in steps]
    first = 1 / math.sqrt(512) / noam(1, config, steps[-1], 512)
    return Mistake(
        "omitting the warm-up",
        [Matrix("step s", [f"{step:,}" for step in steps], ["d^-0.5 s^-0.5"], rates, form=".4e")],
        f"the first learning rate is {first:,.0f} times too large; with post-layer normalization, training does not recover.",
    )


def wrong_power(steps: list[int], warmup: int) -> Mistake:
    rates = [[min(step**-0.5, step * warmup**-0.5) / math.sqrt(512)] for step in steps]
    return Mistake(
        "writing w^-0.5 for w^-1.5",
        [Matrix("step s", [f"{step:,}" for step in steps], ["w^-0.5"], rates, form=".4e")],
        "the two branches then meet at step 16 instead of step w: there is almost no warm-up.",
    )
