"""The worked examples: expected numbers, and the same numbers computed by NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from heedful.inspection.explaining.decoding import sampling
from heedful.inspection.explaining.examples import attention, masked
from heedful.inspection.explaining.lookup import look_up, scaling
from heedful.inspection.explaining.losses import TARGET_WORDS, TARGETS, UNNORMALIZED, loss, schedule
from heedful.inspection.explaining.norms import norms
from heedful.inspection.explaining.positions import positions
from heedful.inspection.explaining.stages import Explanation, Matrix, Stage
from heedful.nn.losses import cross_entropy
from heedful.nn.scores import Additive, Dot, General
from heedful.search.hypothesis import wu

Numbers = Any
Q = np.array([[-1, -2.5], [4, 3]])
K = np.array([[-2, -4], [-2.5, -0.5], [4.5, 2.5]])
X = np.array([[1, 1], [-1, -2.5], [4, 3], [2, -3]])


def softmax(scores: Numbers) -> Numbers:
    """By the definition, over the last axis."""
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def stage(explanation: Explanation, title: str) -> Stage:
    (result,) = (one for one in explanation.stages if one.title == title)
    return result


def numbers(given: list[Matrix] | tuple[Matrix, ...] | Any, name: str) -> Numbers:
    (result,) = (one for one in given if one.name == name)
    return np.array(result.cells, dtype=float)


def shown(explanation: Explanation, title: str, name: str) -> Numbers:
    return numbers(stage(explanation, title).matrices, name)


def wrong(explanation: Explanation, what: str, name: str) -> Numbers:
    (mistake,) = (m for one in explanation.stages for m in one.mistakes if what in m.what)
    return numbers(mistake.matrices, name)


def near(actual: Numbers, expected: Numbers) -> None:
    assert_allclose(actual, expected, atol=6e-5, rtol=0)


def test_attention_from_queries_to_the_weighted_sum() -> None:
    made = attention()
    near(shown(made, "Scores", "S"), [[12, 3.75, -10.75], [-20, -11.5, 25.5]])
    near(shown(made, "Scale", "S'"), [[8.4853, 2.6517, -7.6014], [-14.1421, -8.1317, 18.0312]])
    near(shown(made, "Softmax", "A"), [[0.9971, 0.0029, 0], [0, 0, 1]])
    near(shown(made, "Weighted sum", "out"), [[-2.0015, -3.9898], [4.5, 2.5]])
    expected = softmax(Q @ K.T / np.sqrt(2))
    assert_allclose(shown(made, "Softmax", "A"), expected, rtol=1e-12)
    assert_allclose(shown(made, "Weighted sum", "out"), expected @ K, rtol=1e-12)


def test_mistakes_in_attention() -> None:
    made = attention()
    near(wrong(made, "dividing by the number of keys, 3, instead", "S / 3"), [[4, 1.25, -3.5833], [-6.6667, -3.8333, 8.5]])
    near(wrong(made, "softmax of the unscaled", "A"), [[0.9997, 0.0003, 0], [0, 0, 1]])
    near(wrong(made, "softmax of the unscaled", "out"), [[-2.0001, -3.9991], [4.5, 2.5]])
    near(wrong(made, "softmax of scores divided", "A"), [[0.9395, 0.0601, 0.0005], [0, 0, 1]])
    near(wrong(made, "softmax of scores divided", "out"), [[-2.0269, -3.7867], [4.5, 2.5]])
    down = wrong(made, "over the queries", "wrong axis")
    assert_allclose(down[:, :3], softmax((Q @ K.T / np.sqrt(2)).T).T, rtol=1e-9)
    assert_allclose(down[:, :3].sum(0), 1)
    assert not np.allclose(down[:, 3], 1)
    near(wrong(made, "pairing the first row", "out"), [[-2.0015, 2.5]] * 2)
    near(wrong(made, "truncating the weights", "out"), [[-1.98, -3.96], [4.455, 2.475]])


def test_masked_self_attention() -> None:
    made = masked()
    scores = [[2, -3.5, 7, -1], [-3.5, 7.25, -11.5, 5.5], [7, -11.5, 25, -1], [-1, 5.5, -1, 13]]
    scaled = [
        [1.4142, -2.4749, 4.9497, -0.7071],
        [-2.4749, 5.1265, -8.1317, 3.8891],
        [4.9497, -8.1317, 17.6777, -0.7071],
        [-0.7071, 3.8891, -0.7071, 9.1924],
    ]
    near(shown(made, "Scores", "S"), scores)
    near(shown(made, "Scale", "S'"), scaled)
    near(shown(made, "Mask", "mask"), np.tri(4))
    weights = [[1, 0, 0, 0], [0.0005, 0.9995, 0, 0], [0, 0, 1, 0], [0.00005, 0.00495, 0.00005, 0.99495]]
    near(shown(made, "Softmax", "A"), weights)
    near(shown(made, "Weighted sum", "out"), [[1, 1], [-0.9990, -2.4983], [4, 3], [1.9852, -2.9970]])
    for row in range(4):  # without a mask: each row is a softmax over the positions up to it
        weights_row: Numbers = softmax(X[row] @ X[: row + 1].T / np.sqrt(2))
        assert_allclose(shown(made, "Weighted sum", "out")[row], weights_row @ X[: row + 1], rtol=1e-12)


def test_mistakes_in_masking() -> None:
    made = masked()
    near(wrong(made, "after the softmax", "A · mask")[:, 4], [0.0282, 0.7752, 1, 1])
    unscaled = "masked softmax of the unscaled"
    near(wrong(made, unscaled, "A")[[1, 3]], [[0, 1, 0, 0], [0, 0.0006, 0, 0.9994]])
    expected = [[1, 1], [-0.9999571, -2.499925], [4, 3], [1.9983424, -2.9997153]]
    assert_allclose(wrong(made, unscaled, "out"), np.array(expected, dtype=float), atol=1e-6)
    quarter = [[1, 0, 0, 0], [0.0637, 0.9363, 0, 0], [0.0110, 0.0001, 0.9889, 0], [0.0249, 0.1263, 0.0249, 0.8239]]
    near(wrong(made, "number of words, 4", "A"), quarter)
    near(wrong(made, "number of words, 4", "out"), [[1, 1], [-0.8726, -2.2770], [3.9665, 2.9774], [1.6458, -2.6880]])
    without = [[0.0067, 0, 0.9929, 0.0003], [0, 0.8519, 0, 0.1480], [0, 0, 1, 0], [0, 0.0006, 0, 0.9994]]
    near(wrong(made, "both the mask and the scale", "W"), without)
    output = [[3.9791, 2.9845], [-0.5558, -2.5740], [4, 3], [1.9983, -2.9997]]
    near(wrong(made, "both the mask and the scale", "Y = W X"), output)
    halves = wrong(made, "half precision", "all masked")
    assert np.isnan(halves[0]).all() and wrong(made, "half precision", "float16")[0, 0] == -math.inf
    near(halves[1], [1 / 3] * 3)


def test_a_lookup_is_hard_for_large_scores_and_uniform_for_equal_scores() -> None:
    made = look_up()
    assert_allclose(shown(made, "Hard lookup as a limit", "out"), K[:1])
    assert_allclose(shown(made, "The mean as a limit", "out"), K.mean(0, keepdims=True), atol=1e-12)
    outside = wrong(made, "by their sum", "out")[0]
    assert (outside < K.min(0)).any()


def test_other_scores_equal_those_of_the_layers() -> None:
    made = look_up()
    rows = shown(made, "Other score functions", "score")
    near(rows, [[12, 3.75, -10.75], [9, 6.75, -13.75], [-0.8630, -0.6277, 0.3364]])
    near(shown(made, "Other score functions", "softmax")[1:], [[0.9047, 0.0953, 0], [0.1791, 0.2266, 0.5943]])
    query, keys = torch.tensor(Q[None, :1]).float(), torch.tensor(K[None]).float()
    dot, general, additive = Dot(2, 2), General(2, 2), Additive(2, 2)
    with torch.no_grad():
        general.key.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        for part in (additive.query, additive.key):
            part.weight.copy_(0.1 * torch.eye(2))
        additive.value.weight.fill_(1.0)
        layers = [score(query, score.project_keys(keys))[0, 0].numpy() for score in (dot, general, additive)]
    assert_allclose(rows, layers, atol=1e-6)


def test_scaling_of_a_head_of_dimension_64() -> None:
    made = scaling()
    near(shown(made, "Scale", "S'"), [[14, 12], [4, 8]])
    near(shown(made, "Softmax", "A"), [[0.8808, 0.1192], [0.0180, 0.9820]])
    near(wrong(made, "model dimension", "A")[1], [0.1956, 0.8044])
    near(wrong(made, "not dividing", "A")[1], [0, 1])
    variances = shown(made, "Why the square root", "d_k")
    assert_allclose(variances[:, 0] / [16, 64, 512], 1, atol=0.03)  # 3 standard deviations of 20,000 draws
    assert_allclose(variances[:, 1], 1, atol=0.03)
    unscaled, scaled = variances[:, 2], variances[:, 3]
    assert (np.diff(unscaled) < 0).all() and np.ptp(scaled) < 0.005 and unscaled[-1] < scaled[-1] / 10


@pytest.mark.parametrize(
    ("size", "third", "fourth"),
    [
        (50, [0, 0.6379, 0.9825, 0.8753], [1, 0.7701, 0.1860, -0.4835]),
        (20, [0, 0.3877, 0.7147, 0.9300], [1, 0.9218, 0.6994, 0.3676]),
        (4, [0, 0.0100, 0.0200, 0.0300], [1, 1, 0.9998, 0.9996]),
    ],
)
def test_positional_encodings(size: int, third: list[float], fourth: list[float]) -> None:
    table = shown(positions(), "The positional encoding", f"d = {size}")
    near(table, [[0, 0.8415, 0.9093, 0.1411], [1, 0.5403, -0.4161, -0.9900], third, fourth])
    assert_allclose(table[2], np.sin(np.arange(4) / 10000 ** (2 / size)), rtol=1e-12)


def test_a_shift_is_a_rotation_and_similarity_depends_on_the_distance() -> None:
    made = positions()
    near(shown(made, "A shift of position is a rotation", "M₁, pair 1"), [[0.7701, 0.6379], [-0.6379, 0.7701]])
    rotated, later = (shown(made, "A shift of position is a rotation", name) for name in ("M₁ PE, d = 50", "PE, next position"))
    assert_allclose(rotated, later, atol=1e-12)
    near(shown(made, "Similarity of positions", "d = 128")[0], [64, 62.0937, 57.3819, 52.1862, 48.5860, 47.1850])
    mixed = wrong(made, "counting dimensions", "d = 50")
    assert not np.allclose(mixed[2] ** 2 + mixed[3] ** 2, 1)  # not on the unit circle


def test_the_loss_of_one_step() -> None:
    made = loss()
    near(shown(made, "Loss per token", "t")[:, 0], [0.9208, 0.8, 0.9940, 0.9651, 0.9771])
    near(shown(made, "Loss per token", "t")[:, 1], [0.0825, 0.2231, 0.0060, 0.0355, 0.0232])
    near(shown(made, "Loss of the sentence", "loss")[0, :3], [0.3704, 0.0741, 1.0769])
    near(wrong(made, "sum to 1", "loss")[0], [0.3878, 0.0776, 1.0807, 0.6785])
    near(wrong(made, "sum to 1", "p")[:, 6], [1.010, 1.000, 0.996, 0.974, 1.003])
    p = UNNORMALIZED.numpy() / UNNORMALIZED.numpy().sum(-1, keepdims=True)
    expected = -np.log(p[np.arange(5), TARGETS])
    assert_allclose(shown(made, "Loss of the sentence", "loss")[0, 0], expected.sum(), rtol=1e-12)
    plain = cross_entropy(torch.tensor(p).log(), torch.tensor(TARGETS), padding=-1)[1]
    assert_allclose(float(plain.total), expected.sum(), rtol=1e-6)
    assert TARGET_WORDS == ["io", "sono", "alla", "moda", "<eos>"] and p.argmax(-1).tolist() == TARGETS
    near(wrong(made, "padded length", "loss")[0, 0], expected.sum() / 8)


def test_conventions_of_label_smoothing() -> None:
    table = stage(loss(), "Label smoothing").matrices[0].cells
    near([table[0][3], table[1][3]], [2.5310, 2.9632])
    p = UNNORMALIZED.numpy() / UNNORMALIZED.numpy().sum(-1, keepdims=True)
    onehot = np.eye(6)[TARGETS]
    near(table[0][3], -((0.9 * onehot + 0.1 / 6) * np.log(p)).sum())
    near(table[1][3], -(np.where(onehot == 1, 0.9, 0.02) * np.log(p)).sum())
    assert table[2][3] is None and table[2][2] == 0  # the vocabulary has no padding


def test_temperature_sampling_and_truncation() -> None:
    made = sampling()
    near(shown(made, "Temperature", "T"), [[0.9412, 0.0588], [0.8, 0.2], [0.6667, 0.3333]])
    assert abs(shown(made, "Sample", "samples")[1, 0] - 0.8) < 0.012
    kept = shown(made, "Top-k and top-p", "kept")
    near(kept[1:], [[5 / 8, 3 / 8, 0, 0], [10 / 19, 6 / 19, 3 / 19, 0]])
    near(wrong(made, "instead of their logarithms", "p / 2, renormalized"), [[0.8, 0.2]])
    trace = stage(made, "Generate token by token").matrices[0].cells
    assert [row[1] for row in trace] == TARGET_WORDS and len(trace) == 5


def test_the_schedule_and_its_peak() -> None:
    made = schedule()
    rates = shown(made, "Warm-up, then decay", "step s")
    expected = {0: 1.7469e-7, 1: 1.7469e-5, 3: 6.9877e-4, 5: 1.3975e-4}
    for row, rate in expected.items():
        assert rates[row, 0] == pytest.approx(rate, rel=1e-4)
    assert rates[3, 1] == pytest.approx(4.9411e-4, rel=1e-4)
    assert_allclose(shown(made, "The peak", "peak")[0], rates.max(0), rtol=1e-12)
    assert wrong(made, "omitting the warm-up", "step s")[0, 0] == pytest.approx(512**-0.5)


def test_the_length_penalty() -> None:
    assert (wu(0.2)(10), wu(0.6)(10)) == pytest.approx((1.2011, 1.7329), abs=5e-5)


def test_layer_normalization_is_over_features_and_batch_normalization_over_tokens() -> None:
    made = norms()
    x = shown(made, "Input", "X")
    layer, batch = (next(one for one in made.stages if one.title.startswith(name)) for name in ("Layer", "Batch"))
    rows, columns = numbers(layer.matrices, "Y"), numbers(batch.matrices, "Y")
    assert_allclose(rows, (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5), rtol=1e-12)
    assert_allclose(columns, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-12)
    assert_allclose(columns, torch.nn.BatchNorm1d(4, dtype=torch.float64)(torch.tensor(x)).detach().numpy(), atol=1e-12)
    assert all(one.holds for one in layer.checks) and layer.checks
    assert_allclose(numbers(layer.matrices, "X")[:, 4], x.mean(1))
    assert_allclose(numbers(batch.matrices, "X")[0], x.mean(0))


def test_only_batch_normalization_depends_on_the_batch() -> None:
    made = norms()
    assert_allclose(shown(made, "Another batch", "layer, of 6"), shown(made, "Another batch", "layer, of 2"), rtol=1e-12)
    difference = shown(made, "Another batch", "batch, of 6") - shown(made, "Another batch", "batch, of 2")
    assert np.abs(difference).max() > 0.1
    assert not wrong(made, "for a batch of one token", "batch, of 1").any()
    states = shown(made, "In a recurrent cell", "h")
    assert_allclose(states, shown(made, "In a recurrent cell", "h, with 2 W and 2 U"), atol=1e-4)
    assert np.abs(states).max() > 0.1
