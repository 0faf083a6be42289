"""Scaling on paper: closed forms, limits, and the volume that the exchange of gradients really has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import heed, write_pairs

from heedful.runs.plan import fixed_seconds
from heedful.runs.scaling import STRATEGIES, Cluster, Measured, bytes_sent, communication_seconds, memory_bytes, scale

P = 1_000_000_000  # bytes of weights
MEASURED = Measured(1.0, 0.0, 3600, P, 2 * P, 0, 10 * P)


def test_the_volume_is_that_of_a_ring() -> None:
    assert bytes_sent(P, "ddp", 1) == bytes_sent(P, "fsdp", 1) == 0
    assert bytes_sent(P, "ddp", 2) == P and bytes_sent(P, "ddp", 4) == 1.5 * P
    assert bytes_sent(P, "fsdp", 4) == 2.25 * P


def test_inside_a_node_only_its_link_counts_and_between_nodes_the_slower_one() -> None:
    node = Cluster(1, 8, node_link=100, network_link=1, latency=0)
    assert communication_seconds(P, "ddp", node) == pytest.approx(2 * 7 / 8 * P / 100e9)
    two = node._replace(nodes=2)
    outside = 2 * 15 / 16 * P * 8 / 15  # 8 of the 15 other ranks are in the other node
    assert communication_seconds(P, "ddp", two) == pytest.approx(outside / 1e9)
    assert communication_seconds(P, "ddp", node._replace(latency=1e-3)) == pytest.approx(2 * 7 / 8 * P / 100e9 + 2 * 7 * 1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_infinite_links_the_speedup_is_the_number_of_ranks(strategy: str) -> None:
    cluster = Cluster(8, 8, node_link=1e12, network_link=1e12, latency=0, price=2.0)
    scaled = scale(MEASURED, cluster, strategy)  # type: ignore[arg-type]
    assert scaled.seconds_per_step == pytest.approx(1 / 64) and scaled.efficiency == pytest.approx(1)
    assert scaled.gpu_hours == pytest.approx(1.0) and scaled.cost == pytest.approx(2.0)
    alone = scale(MEASURED, Cluster(1, 1), strategy)  # type: ignore[arg-type]
    assert alone.training_seconds == 3600 and alone.communication_seconds_per_step == 0
    assert alone.memory_bytes_per_rank == 10 * P and alone.checkpoint_bytes == 3 * P


def test_the_fixed_part_of_an_update_is_not_divided() -> None:
    fast = Cluster(8, 8, node_link=1e12, network_link=1e12, latency=0)
    scaled = scale(MEASURED._replace(fixed_seconds_per_step=0.1), fast, "ddp")
    assert scaled.seconds_per_step == pytest.approx(0.1 + 0.9 / 64)
    assert scaled.efficiency == pytest.approx(1 / (64 * 0.1 + 0.9))
    assert fixed_seconds([1.0, 1.2, 0.9], [0.6, 0.5, 0.6]) == pytest.approx(0.2)
    assert fixed_seconds([1.0], [0.4]) == 0 and fixed_seconds([1.0], [1.5]) == 1


def test_sharding_divides_the_state_and_replication_does_not() -> None:
    activations = 10 * P - 4 * P
    assert memory_bytes(MEASURED, "fsdp", 4) == (4 * P + activations) / 4
    assert memory_bytes(MEASURED, "fsdp", 8) == 4 * P / 8 + P, "a validation needs whole weights"
    assert memory_bytes(MEASURED, "ddp", 8) == 4 * P + 2 * P + activations / 8


def test_the_memory_of_the_interpreter_is_not_divided() -> None:
    on_cpu = MEASURED._replace(base_bytes=P, peak_bytes=11 * P)
    for strategy in STRATEGIES:
        assert memory_bytes(on_cpu, strategy, 4) == memory_bytes(MEASURED, strategy, 4) + P


def test_ranks_that_share_devices_wait_for_them() -> None:
    links = Cluster(1, 4, node_link=1e12, latency=0)
    measured = MEASURED._replace(fixed_seconds_per_step=0.2)
    seconds = [scale(measured, links._replace(devices=devices), "ddp").seconds_per_step for devices in (1, 2, 4, 8, None)]
    assert seconds == pytest.approx([4 * 0.2 + 0.8, (4 * 0.2 + 0.8) / 2, 0.2 + 0.8 / 4, 0.2 + 0.8 / 4, 0.2 + 0.8 / 4])


def test_the_command_prints_one_device_one_node_and_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_pairs(tmp_path / "pairs.tsv", 40)
    small = ["model.dim=16", "model.heads=2", "model.layers=1", "model.feed_forward=32", "training.steps=10"]
    data = [f'data.train={{tsv="{files}"}}', f'data.valid={{tsv="{files}"}}']
    given = ["train", "small", *small, *data, "--plan", "--nodes", "4", "--gpus", "2", "--gpu-price", "3", "--json"]
    assert heed(*given) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(one["strategy"], one["ranks"]) for one in plan["scaling"]] == [
        ("ddp", 1), ("ddp", 2), ("fsdp", 2), ("ddp", 8), ("fsdp", 8),
    ]  # fmt: skip
    assert plan["weight_bytes"] == 4 * plan["parameters"] and plan["optimizer_bytes"] >= 2 * plan["weight_bytes"]
    assert plan["scaling"][0]["seconds_per_step"] == pytest.approx(plan["seconds_per_step"])
    assert 0 <= plan["fixed_seconds_per_step"] <= plan["seconds_per_step"]
    assert plan["rows_per_step"] == 40
    assert heed(*given[:-5], "--gpus", "64") == 0
    output = capsys.readouterr()
    assert "an update has 40 rows, so only 40 of 256 GPUs have work" in output.err and "cost" not in output.out
    assert heed("train", "small", "--nodes", "4") == 2
    assert "--plan" in capsys.readouterr().err
