"""Attention equals torch's own and the worked examples; masked keys have weight zero."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.attention import AttentionBias, AttentionCore, CrossAttention, SelfAttention, attention_weights, fused_attention
from heedful.nn.hooks import hook

Rows = list[list[float]]

DIE_KATZE: Rows = [[-1, -2.5], [4, 3]]
THE_CAT_DANCED: Rows = [[-2, -4], [-2.5, -0.5], [4.5, 2.5]]
START_DIE_KATZE_TANZTE: Rows = [[1, 1], [-1, -2.5], [4, 3], [2, -3]]


def one_head(rows: Rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32)[None, None]  # (1, 1, time, head_dim)


def both_paths(query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> tuple[Tensor, Tensor]:
    """The output of the fused kernel and of the explicit weighted sum, which runs when a hook may change the weights."""
    core = AttentionCore(dropout=0.0)
    fused = core(query, key, value, attention_bias)
    with hook(core, "weights", lambda name, weights: weights):
        return fused, core(query, key, value, attention_bias)


def random_heads(queries: int = 4, keys: int = 5, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.randn(2, 3, queries, 8, dtype=dtype)
    return query, torch.randn(2, 3, keys, 8, dtype=dtype), torch.randn(2, 3, keys, 8, dtype=dtype)


def test_the_cat_danced() -> None:
    query, key = one_head(DIE_KATZE), one_head(THE_CAT_DANCED)
    weights = attention_weights(query, key, AttentionBias())
    assert_close(weights[0, 0], torch.tensor([[0.9971, 0.0029, 0], [0, 0, 1]]), atol=1e-4, rtol=0)
    for out in both_paths(query, key, key, AttentionBias()):
        assert_close(out[0, 0], torch.tensor([[-2.0015, -3.9898], [4.5, 2.5]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "attention_bias", [AttentionBias(causal=True), AttentionBias(mask=torch.ones(4, 4).tril().bool())], ids=["causal", "mask"]
)
def test_masked_self_attention_of_die_katze_tanzte(attention_bias: AttentionBias) -> None:
    x = one_head(START_DIE_KATZE_TANZTE)
    weights = attention_weights(x, x, attention_bias)
    expected = [[1, 0, 0, 0], [0.0005, 0.9995, 0, 0], [0, 0, 1, 0], [0.00005, 0.00495, 0.00005, 0.99495]]
    assert_close(weights[0, 0], torch.tensor(expected), atol=1e-4, rtol=0)
    for out in both_paths(x, x, x, attention_bias):
        expected = [[1, 1], [-0.9990, -2.4983], [4, 3], [1.9852, -2.9970]]
        assert_close(out[0, 0], torch.tensor(expected), atol=1e-4, rtol=0)


def test_thinking_machines() -> None:
    query = torch.ones(1, 1, 1, 64)
    key = torch.cat((query / 2, query), dim=2)  # products 32 and 64, divided by 8
    assert_close(attention_weights(query, key, AttentionBias()).flatten(), torch.tensor([0.0180, 0.9820]), atol=1e-4, rtol=0)


def test_identity_projections_give_parameter_free_self_attention() -> None:
    attention = SelfAttention(dim=2, heads=1, head_dim=2, dropout=0.0)
    with torch.no_grad():
        attention.project.weight.copy_(torch.eye(2).repeat(3, 1))
        attention.project.weight[:2] *= math.sqrt(2)  # the example is not scaled
        attention.out.weight.copy_(torch.eye(2))
        out = attention(*attention.split(one_head(START_DIE_KATZE_TANZTE)[0]), AttentionBias())
    expected = [[3.9791, 2.9845], [-0.5558, -2.5740], [4, 3], [1.9983, -2.9997]]
    assert_close(out[0], torch.tensor(expected), atol=1e-4, rtol=0)


def test_weights_sum_to_one_and_outputs_lie_between_the_values() -> None:
    query, key, value = random_heads()
    weights = attention_weights(query, key, AttentionBias())
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), torch.ones(2, 3, 4))
    for out in both_paths(query, key, value, AttentionBias()):
        assert (out <= value.amax(2, keepdim=True) + 1e-6).all()
        assert (out >= value.amin(2, keepdim=True) - 1e-6).all()


def test_scores_a_thousand_times_larger_select_the_best_key() -> None:
    query, key, value = random_heads()
    best = (query @ key.transpose(-2, -1)).argmax(-1, keepdim=True)  # (2, 3, 4, 1)
    hard = value.gather(2, best.expand(-1, -1, -1, 8))
    for out in both_paths(query * 1e3, key, value, AttentionBias()):
        assert_close(out, hard)


def test_equal_scores_give_the_mean_of_the_values() -> None:
    query, key, value = random_heads()
    for out in both_paths(torch.zeros_like(query), key, value, AttentionBias()):
        assert_close(out, value.mean(2, keepdim=True).expand_as(out))


SOME = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 1, 1, 1, 0]]).bool()
DISTANCE = torch.linspace(-1, 2, 75).view(1, 3, 5, 5)
BIASES = {
    "none": AttentionBias(),
    "mask": AttentionBias(mask=torch.stack((SOME, SOME.T))[:, None]),
    "causal": AttentionBias(causal=True),
    "bias": AttentionBias(bias=DISTANCE),
    "mask and bias": AttentionBias(mask=SOME[:2, None, None], bias=DISTANCE),
    "causal and bias": AttentionBias(causal=True, bias=DISTANCE),
}


@pytest.mark.parametrize("attention_bias", BIASES.values(), ids=BIASES)
def test_fused_and_explicit_agree_with_torch(attention_bias: AttentionBias) -> None:
    query, key, value = random_heads(queries=5)
    added = torch.zeros(2, 3, 5, 5) if attention_bias.bias is None else attention_bias.bias.expand(2, 3, 5, 5).clone()
    allowed = torch.ones(5, 5).tril().bool() if attention_bias.causal else attention_bias.mask
    if allowed is not None:
        added = added.masked_fill(~allowed, -math.inf)
    torchs = nn.functional.scaled_dot_product_attention(query, key, value, added)
    for out in both_paths(query, key, value, attention_bias):
        assert_close(out, torchs, atol=1e-5, rtol=0)


def test_masking_comes_before_the_softmax() -> None:
    """Zeroing afterwards would leave rows of 0.0282, 0.7752, 1, 1."""
    x = one_head(START_DIE_KATZE_TANZTE)
    assert_close(attention_weights(x, x, AttentionBias(causal=True)).sum(-1), torch.ones(1, 1, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_a_query_with_all_keys_masked_gets_zeros(dtype: torch.dtype, biased: bool) -> None:
    query, key, value = (tensor.requires_grad_() for tensor in random_heads(dtype=dtype))
    mask = torch.ones(2, 1, 4, 5, dtype=torch.bool)
    mask[0, :, 1] = False
    bias = torch.randn(1, 3, 4, 5, dtype=dtype) if biased else None
    attention_bias = AttentionBias(mask, bias=bias)
    assert not attention_weights(query, key, attention_bias)[0, :, 1].any()
    for out in both_paths(query, key, value, attention_bias):
        assert not out[0, :, 1].any()
        assert out[0, :, 0].abs().min() > 0
        assert out.isfinite().all()
        for gradient in torch.autograd.grad(out.float().square().sum(), (query, key, value), retain_graph=True):
            assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_are_safe_in_half_precision(dtype: torch.dtype) -> None:
    """-1e9 would overflow; a masked key has weight 0 even if its score is the largest."""
    query, key, value = random_heads(dtype=dtype)
    key[:, :, 0] = query[:, :, 0] * 30
    mask = (torch.arange(5) > 0).expand(1, 1, 1, 5)
    weights = attention_weights(query, key, AttentionBias(mask))
    assert not weights[..., 0].any()
    assert_close(weights.float().sum(-1), torch.ones(2, 3, 4), atol=1e-2, rtol=0)
    expected = fused_attention(query.float(), key.float(), value.float(), AttentionBias(mask), 0.0)
    for out in both_paths(query, key, value, AttentionBias(mask)):
        assert_close(out.float(), expected, atol=5e-2, rtol=0)


def torchs_attention(dim: int, heads: int) -> nn.MultiheadAttention:
    attention = nn.MultiheadAttention(dim, heads, batch_first=True)
    nn.init.normal_(attention.in_proj_bias)
    nn.init.normal_(attention.out_proj.bias)
    return attention


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_self_attention_equals_torchs_with_the_same_weights(heads: int) -> None:
    torchs = torchs_attention(16, heads)
    ours = SelfAttention(16, heads, 16 // heads, dropout=0.0)
    ours.project.load_state_dict({"weight": torchs.in_proj_weight, "bias": torchs.in_proj_bias})
    ours.out.load_state_dict(torchs.out_proj.state_dict())
    x, real = torch.randn(3, 6, 16), torch.arange(6) < torch.tensor([[6], [2], [4]])
    expected, weights = torchs(x, x, x, key_padding_mask=~real, average_attn_weights=False)
    query, key, value = ours.split(x)
    attention_bias = AttentionBias(real[:, None, None])
    assert_close(ours(query, key, value, attention_bias), expected, atol=1e-5, rtol=0)
    assert_close(attention_weights(query, key, attention_bias), weights, atol=1e-5, rtol=0)


def test_cross_attention_equals_torchs_with_the_same_weights() -> None:
    torchs = torchs_attention(16, 4)
    ours = CrossAttention(16, 4, 4, dropout=0.0)
    ours.query.load_state_dict({"weight": torchs.in_proj_weight[:16], "bias": torchs.in_proj_bias[:16]})
    ours.memory.load_state_dict({"weight": torchs.in_proj_weight[16:], "bias": torchs.in_proj_bias[16:]})
    ours.out.load_state_dict(torchs.out_proj.state_dict())
    source, real = torch.randn(3, 6, 16), torch.arange(6) < torch.tensor([[6], [2], [4]])
    target = torch.randn(3, 5, 16)
    expected, _ = torchs(target, source, source, key_padding_mask=~real)
    assert_close(ours(target, *ours.project_memory(source), AttentionBias(real[:, None, None])), expected, atol=1e-5, rtol=0)


def test_self_attention_is_permutation_equivariant() -> None:
    attention, x, order = SelfAttention(16, 2, 8, dropout=0.0), torch.randn(1, 7, 16), torch.randperm(7)
    straight = attention(*attention.split(x), AttentionBias())
    permuted = attention(*attention.split(x[:, order]), AttentionBias())
    assert_close(permuted, straight[:, order], atol=1e-6, rtol=0)


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_the_number_of_parameters_does_not_depend_on_the_heads(heads: int) -> None:
    with torch.device("meta"):
        both = SelfAttention(512, heads, 512 // heads, 0.0), CrossAttention(512, heads, 512 // heads, 0.0)
    for attention in both:
        assert sum(parameter.numel() for parameter in attention.parameters()) == 1_050_624
        assert sum(parameter.numel() for parameter in attention.parameters() if parameter.ndim == 2) == 1_048_576


@pytest.mark.parametrize("head", [0, 1, 2])
def test_zeroing_the_output_rows_of_a_head_removes_the_head(head: int) -> None:
    attention, x = SelfAttention(9, 3, 3, dropout=0.0), torch.randn(2, 4, 9)
    assert sum(parameter.numel() for parameter in attention.parameters() if parameter.ndim == 2) == 324

    def zero_head(name: str, context: Tensor) -> Tensor:
        return context.index_fill(1, torch.tensor([head]), 0.0)

    with hook(attention, "context", zero_head):
        ablated = attention(*attention.split(x), AttentionBias())
    assert not torch.allclose(ablated, attention(*attention.split(x), AttentionBias()))
    with torch.no_grad():
        attention.out.weight[:, 3 * head : 3 * head + 3] = 0.0
    assert_close(ablated, attention(*attention.split(x), AttentionBias()))


def test_scaling_keeps_the_softmax_from_saturating() -> None:
    """var(q . k) is head_dim; without the division the gradient of a large head would vanish."""
    query, key = torch.randn(64, 1, 1, 512), torch.randn(64, 1, 8, 512)
    scaled = attention_weights(query, key, AttentionBias())
    unscaled = attention_weights(query * math.sqrt(512), key, AttentionBias())

    def derivative(weights: Tensor) -> float:
        return float((weights * (1 - weights)).amax(-1).mean())

    assert derivative(scaled) > 5 * derivative(unscaled)


def test_attention_dropout_keeps_the_expectation_in_both_paths() -> None:
    query, key, value = random_heads()
    core = AttentionCore(dropout=0.5)
    expected = AttentionCore(dropout=0.0)(query, key, value, AttentionBias())
    fused = torch.stack([core(query, key, value, AttentionBias()) for _ in range(400)])
    with hook(core, "weights", lambda name, weights: weights):
        explicit = torch.stack([core(query, key, value, AttentionBias()) for _ in range(400)])
    for samples in (fused, explicit):
        error = samples.std(0) / math.sqrt(400)
        assert samples.std(0).min() > 0
        assert ((samples.mean(0) - expected).abs() < 5 * error).all()
    assert_close(core.eval()(query, key, value, AttentionBias()), expected)
