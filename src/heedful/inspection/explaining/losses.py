"""Learning by hand: the loss of one sentence, and how fast to go.

loss = -sum_t ln p(y_t | y_<t, x)                    smoothed: -sum_t sum_v q_t(v) ln p_t(v)
rate = d^-0.5 min(s^-0.5, s w^-1.5)                  (Vaswani et al., 2017)
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
SAID = [WORDS[word] for word in TARGETS]
GIVEN = torch.tensor(
    [
        [0.01, 0.02, 0.93, 0.01, 0.03, 0.01],
        [0.01, 0.8, 0.1, 0.05, 0.01, 0.03],
        [0.99, 0.001, 0.001, 0.001, 0.002, 0.001],
        [0.001, 0.002, 0.001, 0.02, 0.94, 0.01],
        [0.01, 0.01, 0.001, 0.001, 0.001, 0.98],
    ],
    dtype=torch.float64,
)  # (5 steps, 6 words) as somebody wrote them down, not all rows adding up to 1
OUTPUTS = GIVEN / GIVEN.sum(-1, keepdim=True)
SMOOTHING = 0.1


def loss() -> Explanation:
    wanted = torch.nn.functional.one_hot(torch.tensor(TARGETS), len(WORDS))
    stages = [
        Stage(
            "What should be said",
            "y_t = onehot(word_t)",
            [matrix("target", SAID, WORDS, wanted)],
            "Each step has one right word; the end is one of them. The decoder is fed the right words before it (teacher "
            "forcing), so all steps are computed at once.",
        ),
        Stage(
            "What the model says",
            "p_t = softmax(logits_t)",
            [with_sum(matrix("p", SAID, WORDS, OUTPUTS, shaded=True))],
            "A probability for every word of the vocabulary, at every step. The likeliest word is the right one in each row.",
            [not_normalized()],
        ),
        Stage(
            "Loss of each word",
            "loss_t = -y_t * ln p_t = -ln p_t(y_t)",
            [matrix("t", SAID, ["p", "−ln p"], torch.stack((chances(OUTPUTS), surprise(OUTPUTS)), dim=-1))],
            "The target is 0 everywhere but at one word, so the sum over the vocabulary is one logarithm: 0 where the model is "
            "sure and right, large where it is sure and wrong.",
        ),
        Stage(
            "Loss of the sentence",
            "total = sum_t loss_t , mean = frac(total, n) , perplexity = exp(mean)",
            [figures("loss", OUTPUTS)],
            "Their sum is minus the logarithm of the probability of the whole sentence. The mean per token can be compared "
            "across sentences; its exponential, the perplexity, says among how many words the model hesitates.",
            [counting_padding(), mean_of_inverses()],
        ),
        smoothing(),
    ]
    opening = "One training step on 'I am trendy' -> 'io sono alla moda', with a vocabulary of six words."
    return Explanation("Loss: how wrong was it?", opening, stages)


def chances(outputs: Tensor) -> Tensor:
    return outputs[range(len(TARGETS)), TARGETS]  # (5,)


def surprise(outputs: Tensor) -> Tensor:
    return -chances(outputs).log()


def figures(name: str, outputs: Tensor) -> Matrix:
    total = float(surprise(outputs).sum())
    mean = total / len(TARGETS)
    columns = ["sum", "mean", "perplexity", "product of p"]
    return Matrix(name, ["5 tokens"], columns, [[total, mean, math.exp(mean), math.exp(-total)]])


def smoothing() -> Stage:
    target, columns = torch.tensor(TARGETS), ["true word", "any other", "padding", "sum of losses"]
    rows: list[list[float | None]] = []
    for share in SMOOTHINGS:
        wish = SMOOTHINGS[share](SMOOTHING, len(WORDS))
        smoothed = cross_entropy(OUTPUTS.log(), target, padding=-1, smoothing=SMOOTHING, share=share)[0]
        rows.append([*wish, None if share == "words" else float(smoothed.total)])
    return Stage(
        "Label smoothing",
        "loss_t = -sum_v q_t(v) ln p_t(v) , epsilon = 0.1",
        [Matrix("shared among", ["all: ε/V", "others: ε/(V−1)", "words: ε/(V−2)"], columns, rows)],
        "The true word gives up a little, so that the model need not become ever surer. Three conventions are in use and their "
        "losses cannot be compared: ε is shared among all words, among the others, or among the others but the padding "
        "(which this vocabulary does not have). Compare models by the plain loss.",
    )


def not_normalized() -> Mistake:
    return Mistake(
        "taking numbers for probabilities that do not add up to 1",
        [with_sum(matrix("p", SAID, WORDS, GIVEN)), figures("loss", GIVEN)],
        "rows that hold 1.01 or 0.974 are not what a softmax gives, and their loss belongs to no distribution.",
    )


def counting_padding() -> Mistake:
    total, places = float(surprise(OUTPUTS).sum()), 8
    mean = total / places
    return Mistake(
        f"dividing by the padded length, {places}, instead of the 5 real tokens",
        [Matrix("loss", [f"{places} places"], ["mean", "perplexity"], [[mean, math.exp(mean)]])],
        "padding costs nothing and is no achievement: the loss would fall with the longest sentence of the batch.",
    )


def mean_of_inverses() -> Mistake:
    mean = float((1 / chances(OUTPUTS)).mean())
    return Mistake(
        "taking the mean of 1/p for the perplexity",
        [Matrix("perplexity", ["mean of 1/p"], ["value"], [[mean]])],
        "the mean is taken of the logarithms, and one exponential at the end; one word with p = 0.001 would outweigh all.",
    )


def schedule() -> Explanation:
    steps, sizes, warmup = [1, 100, 1000, 4000, 16_000, 100_000], [512, 1024], 4000
    config = ScheduleConfig(name="noam", warmup=warmup)
    names = [f"{step:,}" for step in steps]
    rates = [[noam(step, config, steps[-1], size) for size in sizes] for step in steps]
    columns = [f"d = {size}" for size in sizes]
    stages = [
        Stage(
            "Warm up, then slow down",
            "rate = d^-0.5 min(s^-0.5, s w^-1.5) , w = 4000",
            [Matrix("step s", names, columns, rates, form=".4e")],
            "At first the estimates of Adam are poor and large steps do harm, so the rate rises in a straight line for w "
            "steps; then it falls as the root of the steps grows. Larger models take smaller steps.",
            [no_warmup(steps, config), wrong_power(steps, warmup)],
        ),
        Stage(
            "The peak",
            "rate_w = frac(1, sqrt(d w))",
            [Matrix("peak", [f"{warmup:,}"], columns, [[1 / math.sqrt(size * warmup) for size in sizes]], form=".4e")],
            "Both branches meet at step w: s^-0.5 and s w^-1.5 are equal there, and that is the largest rate.",
        ),
    ]
    return Explanation("Schedule: how fast to learn, and when", "The learning rate of the Transformer's paper.", stages)


def no_warmup(steps: list[int], config: ScheduleConfig) -> Mistake:
    rates = [[1 / math.sqrt(512 * step)] for step in steps]
    first = 1 / math.sqrt(512) / noam(1, config, steps[-1], 512)
    return Mistake(
        "leaving the warm-up out",
        [Matrix("step s", [f"{step:,}" for step in steps], ["d^-0.5 s^-0.5"], rates, form=".4e")],
        f"the first step is {first:,.0f} times too large; with layers normalized after the sum, training does not recover.",
    )


def wrong_power(steps: list[int], warmup: int) -> Mistake:
    rates = [[min(step**-0.5, step * warmup**-0.5) / math.sqrt(512)] for step in steps]
    return Mistake(
        "writing w^-0.5 for w^-1.5",
        [Matrix("step s", [f"{step:,}" for step in steps], ["w^-0.5"], rates, form=".4e")],
        "the line then crosses the curve at step 16, not at step w: there is hardly a warm-up at all.",
    )
