"""heedful.inspection.pruning_curve: the loss with heads ablated is that of the pruned model."""

from __future__ import annotations

from pathlib import Path

import pytest

import heedful
from heedful.errors import ConfigError
from heedful.inspection.analyses.pruning import pruning_curve
from heedful.inspection.drawing.figure import Polyline
from heedful.inspection.measures.head_pruning import ablated, head_scores, rank_heads
from heedful.inspection.measures.importance import gate_gradients
from heedful.nn.hooks import any_hooks
from heedful.runs.prune import HeadSelection, prune


@pytest.mark.parametrize(("task", "count"), [("translation", 5), ("language", 1), ("classification", 1)])
def test_the_figures_equal_those_of_the_pruned_model(tiny_runs: dict[str, Path], task: str, count: int, tmp_path: Path) -> None:
    predictor = heedful.load(tiny_runs[task])
    (point,) = pruning_curve(predictor, [count], sentences=12).points
    assert point.kept == count == sum(point.heads.values())
    small = prune(tiny_runs[task], tmp_path / "small", HeadSelection(point.heads, sentences=12))
    assert {kind: sum(layers) for kind, layers in small.heads.items()} == point.heads
    assert small.figures == pytest.approx(point.figures, rel=1e-4)


def test_all_heads_kept_is_the_model_itself_and_no_hook_remains(tiny_runs: dict[str, Path]) -> None:
    translator = heedful.load(tiny_runs["translation"])
    result = pruning_curve(translator, sentences=12)
    assert [point.kept for point in result.points] == [2, 3, 6, 9, 12] and len(result.ranking) == 12
    assert result.points[-1].figures == translator.validate().figures
    assert not any_hooks()


def test_heads_of_one_kind_are_removed_in_the_order_of_the_ranking(tiny_runs: dict[str, Path]) -> None:
    predictor = heedful.load(tiny_runs["translation"])
    result = pruning_curve(predictor, [1, 4], kind="cross", sentences=12)
    assert [point.heads for point in result.points] == [
        {"encoder": 4, "decoder": 4, "cross": 1},
        {"encoder": 4, "decoder": 4, "cross": 4},
    ]
    model = predictor.model
    ranked = rank_heads(model, head_scores(model, predictor.training_losses(12), gate_gradients), "cross")
    assert [head.score for head in ranked] == sorted((head.score for head in ranked), reverse=True)
    with ablated(model, ranked[1:]):
        assert predictor.validate().figures == result.points[0].figures
    assert result.ranking[0] == "cross.{}.{}".format(ranked[0].attention.split(".")[1], ranked[0].head)


def test_the_line_chart_has_a_point_for_each_count(tiny_runs: dict[str, Path]) -> None:
    result = pruning_curve(heedful.load(tiny_runs["translation"]), [3, 6, 12], sentences=12)
    loss, metric = result.charts()
    assert (result.metric, loss.title, metric.title) == ("loss", "loss", "bleu")
    line = max((mark.points for mark in loss.marks if isinstance(mark, Polyline)), key=len)
    assert len(line) == 3
    (x0, _), (x1, _), (x2, _) = line
    assert (x1 - x0) / (x2 - x0) == pytest.approx((6 - 3) / (12 - 3))


def test_progress_sums_to_one(tiny_runs: dict[str, Path]) -> None:
    shares: list[float] = []
    pruning_curve(heedful.load(tiny_runs["translation"]), [3, 6], sentences=12, progress=shares.append)
    assert shares == [0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"keep": [13]}, "expected numbers of heads from 0 to 12"), ({"kind": "within"}, "unknown kind of heads 'within'")],
)
def test_wrong_counts_and_kinds_are_errors(tiny_runs: dict[str, Path], options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pruning_curve(heedful.load(tiny_runs["translation"]), sentences=4, **options)  # type: ignore[arg-type]
