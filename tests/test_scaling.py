"""The scaling benchmark: its measurements are correct, and a quick run writes a complete result."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import memory
import pytest
import scaling
import torch
from hypothesis import given
from hypothesis import strategies as st
from scaling_families import FAMILY_SHAPES
from scaling_meter import Meter, exponent_of
from scaling_rows import lengths_table
from scaling_steps import SIZES, weights_of

from heedful.models import MODELS
from heedful.nn.sequence_layers import SEQUENCE_LAYERS

pytestmark = pytest.mark.benchmark

CPU = torch.device("cpu")
MEGABYTE = 2**20


def holding(megabytes: int) -> Callable[[], None]:
    """A step that allocates this much memory."""

    def step() -> None:
        torch.ones(megabytes * MEGABYTE, dtype=torch.uint8)

    return step


def meter(seconds: float = 10.0, gigabytes: float = 4.0) -> Meter:
    return Meter(CPU, seconds, gigabytes * 1e9, repetitions=2)


@given(power=st.floats(-1, 3), factor=st.floats(0.01, 100))
def test_the_exponent_of_a_power_law_is_its_power(power: float, factor: float) -> None:
    points = [{"value": 2.0**k, "seconds": factor * 2.0 ** (k * power)} for k in range(3, 9)]
    points[0]["seconds"] = 77.0  # only the last points are fitted
    assert exponent_of(points, "seconds") == pytest.approx(power, abs=0.006)
    assert exponent_of(points[:1], "seconds") is None


def test_the_memory_of_each_step_is_measured_independently() -> None:
    for megabytes in (60, 20, 120):
        assert meter().bytes(holding(megabytes)) == pytest.approx(megabytes * MEGABYTE, rel=0.1)


def test_the_peak_is_measured_after_memory_is_freed() -> None:
    before = memory.reset_peak()
    holding(50)()
    assert memory.peak() - before > 45 * MEGABYTE
    assert memory.reset_peak() - before < 25 * MEGABYTE


def test_measurement_stops_at_the_time_or_memory_limit() -> None:
    sizes = (1, 20, 80, 300)
    results = meter(gigabytes=0.05).grow((size, partial(holding, size)) for size in sizes)
    assert [point["value"] for point in results["points"]] == [1, 20, 80]
    assert results["stopped"] == "a step took more than 0.05 GB"
    results = meter(seconds=0.0).grow((size, partial(holding, size)) for size in sizes)
    assert [point["value"] for point in results["points"]] == [1]
    assert results["stopped"] == "a step took more than 0 s"


def test_a_first_call_that_compiles_is_not_measured() -> None:
    def compiling(size: int) -> Callable[[], None]:
        calls = iter([0.3])
        return lambda: time.sleep(next(calls, 0.0))

    slept = Meter(CPU, 0.1, 4e9, repetitions=2)
    slept.clock = time.perf_counter  # a clock that includes sleep
    results = slept.grow((size, partial(compiling, size)) for size in (1, 2))
    assert results["stopped"] is None and all(point["seconds"] < 0.1 for point in results["points"])


def test_measurement_stops_when_memory_is_exhausted() -> None:
    def full() -> Callable[[], None]:
        raise torch.OutOfMemoryError

    results = meter().grow([(1, lambda: holding(1)), (1024, full), (2048, full)])
    assert [point["value"] for point in results["points"]] == [1]
    assert results["stopped"] == "out of memory at 1,024"


def test_interleaved_measurements_continue_when_one_of_them_stops() -> None:
    calls: list[tuple[str, int]] = []

    def recording(name: str, value: int, megabytes: int) -> Callable[[], None]:
        hold = holding(megabytes)

        def step() -> None:
            calls.append((name, value))
            hold()

        return step

    def work(name: str, megabytes: tuple[int, ...]) -> list[tuple[int, Callable[[], Callable[[], None]]]]:
        return [(value, partial(recording, name, value, size)) for value, size in enumerate(megabytes, start=1)]

    results = meter(gigabytes=0.05).grow_together({"small": work("small", (1, 1, 1)), "large": work("large", (1, 80, 1))})
    turns = [name for name, value in calls if value == 2]
    assert turns == ["small", "large"] * 4  # to warm up, twice for the time, once for the memory
    assert [point["value"] for point in results["small"]["points"]] == [1, 2, 3] and results["small"]["stopped"] is None
    assert [point["value"] for point in results["large"]["points"]] == [1, 2] and "0.05 GB" in results["large"]["stopped"]
    assert ("large", 3) not in calls


def test_families_are_measured_with_the_same_number_of_tokens_at_each_length(run: Path) -> None:
    results = json.loads((run / "out.json").read_text())["families"]
    assert results["kinds"] and results["kinds"].keys() <= MODELS.keys()
    for kind in results["kinds"].values():
        assert [point["value"] for point in kind["points"]] == results["lengths"] == [4, 8, 16]
    assert all(shapes.tokens % length == 0 for shapes in FAMILY_SHAPES.values() for length in shapes.lengths)


def test_the_table_of_families_has_a_cell_for_every_length_even_if_stopped() -> None:
    points = [{"value": 8, "seconds": 0.002}, {"value": 16, "seconds": 0.005}]
    kinds = {"whole": {"points": points}, "stopped": {"points": points[:1]}, "absent": {"points": []}}
    head, rows = lengths_table({"lengths": [8, 16], "kinds": kinds})
    assert head[1:3] == ["8", "16"]
    assert rows == [["whole", "2", "5", "2.50 x"], ["stopped", "2", "", "1.00 x"]]


def test_the_base_model_has_as_many_parameters_as_in_the_paper() -> None:
    """Each of six layers: 4 d^2 + 8 d^2 in the encoder, 8 d^2 + 8 d^2 in the decoder, with biases and norms."""
    dim, layers = 512, 6
    attention, feed_forward, norm = 4 * (dim * dim + dim), 8 * dim * dim + 5 * dim, 2 * dim
    expected = layers * (3 * attention + 2 * feed_forward + 5 * norm)
    assert weights_of(SIZES["base"], vocab=100) == pytest.approx(expected, rel=1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick run of every part; drawing where matplotlib is installed."""
    folder = tmp_path_factory.mktemp("scaling")
    given = [
        "--quick",
        "--device",
        "cpu",
        "--repetitions",
        "1",
        "--output",
        str(folder / "out.json"),
        "--pictures",
        str(folder),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["scaling.py", *given])
        scaling.main()
    return folder


def test_a_quick_run_measures_every_kind_of_layer_and_every_part(run: Path) -> None:
    results = json.loads((run / "out.json").read_text())
    assert results.keys() == {"length", "size", "batch", "families", "data"}
    assert results["length"]["kinds"].keys() == SEQUENCE_LAYERS.keys()
    for name, kind in results["length"]["kinds"].items():
        assert [point["value"] for point in kind["points"]] == [8, 16, 32]
        assert all(point["seconds"] > 0 and point["bytes"] >= 0 for point in kind["points"])
        assert kind["expected_exponent"] == (2 if kind["cost"].startswith("n^2") else 1), name
        assert kind["stopped"] is None
    assert results["size"]["names"] == ["d8", "d16"]
    assert [point["value"] for point in results["batch"]["points"]] == [1, 2, 4]
    (point,) = results["data"]["points"]
    assert point["value"] == 500 and point["batches"] > 0 and point["tokens"] > 1000
    assert list(point["stages"]) == ["learn", "check", "encode", "open", "plan"]
    assert all(part["torch"] == torch.__version__ and part["date"] for part in results.values())


def test_the_complexity_table_has_a_line_for_each_kind(run: Path) -> None:
    lines = scaling.complexity_table(json.loads((run / "out.json").read_text())["length"]).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*SEQUENCE_LAYERS]


def test_earlier_results_are_kept_and_can_be_drawn_later(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    again = tmp_path / "again.json"
    again.write_text(json.dumps({"batch": json.loads((run / "out.json").read_text())["batch"]}))
    small = ["--parts", "size", "--quick", "--device", "cpu", "--repetitions", "1"]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *small, "--output", str(again), "--pictures", str(tmp_path)])
    scaling.main()
    assert json.loads(again.read_text()).keys() == {"batch", "size"}
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert drawn == ["scaling-batch.png", "scaling-size.png"]
    monkeypatch.setattr(sys, "argv", ["scaling.py", "--draw", str(run / "out.json"), "--pictures", str(tmp_path / "later")])
    scaling.main()
    pictures = sorted((tmp_path / "later").iterdir())
    assert [path.stem for path in pictures] == [f"scaling-{part}" for part in ("batch", "data", "families", "length", "size")]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000 for path in pictures)


def test_missing_measurements_are_omitted_from_figures(run: Path, tmp_path: Path) -> None:
    pictures = pytest.importorskip("scaling_pictures")
    results = json.loads((run / "out.json").read_text())
    for part in (*results["length"]["kinds"].values(), results["size"], results["batch"]):
        part["points"] = [point | {"bytes": 0} for point in part["points"]]
        part["exponent"]["bytes"] = None
    results["length"]["kinds"]["gru"] |= {"points": [], "stopped": "no memory left at 8"}
    results["families"]["kinds"]["gnmt"] |= {"points": [], "stopped": "no memory left at 4"}
    assert len(list(pictures.draw(results, tmp_path))) == 5


def test_an_unknown_part_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["scaling.py", "--parts", "length,widht"])
    with pytest.raises(SystemExit):
        scaling.main()
    assert "unknown part 'widht'; expected some of: length, size, batch, families, data" in capsys.readouterr().err


@given(heights=st.lists(st.floats(0, 1), min_size=1, max_size=9), gap=st.floats(0.01, 0.1))
def test_labels_at_line_ends_do_not_overlap_and_keep_their_order(heights: list[float], gap: float) -> None:
    drawing = pytest.importorskip("drawing")
    heights.sort()
    moved = drawing.spread_labels(heights, gap)
    assert len(moved) == len(heights)
    assert all(after - before >= gap - 1e-9 for before, after in pairwise(moved))
    if all(after - before >= gap for before, after in pairwise(heights)):
        assert moved == pytest.approx(heights)
    pressed = drawing.clamp(0.9, moved, gap)
    assert pressed[-1] <= 0.9 and all(after - before >= gap - 1e-9 for before, after in pairwise(pressed))
    assert all(after <= before for before, after in zip(moved, pressed, strict=True))
    assert pressed[0] in (moved[0], 0.9 - gap * (len(moved) - 1))
