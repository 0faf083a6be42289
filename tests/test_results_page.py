"""docs/results.md is what `python benchmarks/report.py` writes, and sections without results are left out."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import report
import sections
from sections import checks, dialogue, encoders, quality

OPTIONAL = (
    checks.faults,
    checks.planted,
    checks.texts,
    dialogue.chat,
    dialogue.retrieval,
    dialogue.retrieval_index,
    encoders.classification_cpu,
    encoders.document_sentences,
    encoders.masked_training,
    quality.no_options,
    quality.starters,
)
MACHINE = {"machine": "a CPU", "torch": "2.0", "date": "2026-01-01"}
RANKING = {name: [0.5, 0.4, 0.6] for name in ("recall_1", "recall_10", "mrr")}
RANKED = {
    "figures": {"loss": 1.0} | {name: value for name, (value, *_) in RANKING.items()},
    "intervals": {name: bounds for name, (_, *bounds) in RANKING.items()},
}
BM25 = RANKED | {"difference": RANKING}
RETRIEVER = RANKED | {"recipe": "r", "split": "test", "examples": 9, "candidates": 100, "bm25": BM25}
CHAT_MODEL = {"perplexity": 5.0, "interval": [4.0, 6.0], "seeds": [4.5, 5.5], "by_turns": {"1": 6.0, "5": 4.0}, "parameters": 7}
SAMPLES: dict[str, dict[str, Any]] = {  # small results in the format of programs whose results are not stored yet
    "chat.json": {
        "split": "test",
        "replies": 3,
        "tokens": 30,
        "models": {"a": CHAT_MODEL, "b": CHAT_MODEL},
        "paired": {"b - a": {"difference": -0.1, "interval": [-0.2, 0.1], "replies_better": 0.6}},
        "overrides": [],
    },
    "retrieval.json": {"single-turn": RETRIEVER, "multi-turn": RETRIEVER, "multi-turn - single-turn": RANKING},
    "retrieval_index.json": {
        "entries": 1000,
        "dim": 8,
        "single": {"milliseconds": 3.0, "milliseconds_per_query": 3.0},
        "batch_of_64": {"milliseconds": 64.0, "milliseconds_per_query": 1.0},
        "exact": True,
        "index_mb": 5,
        "open_seconds": 0.1,
        "resident_mb_before": 1,
        "resident_mb_after": 2,
    },
    "classify_cpu.json": {
        "texts_per_second": {"heedful": 30.0, "pipeline": 10.0, "pipeline_sorted": 15.0},
        "median_ratio": {"pipeline": 3.0, "pipeline_sorted": 2.0},
        "ratios": {"pipeline": [2.9, 3.0, 3.1], "pipeline_sorted": [1.9, 2.0, 2.1]},
        "pipeline_batch_size": {"pipeline": 8, "pipeline_sorted": 64},
        "equal_labels": 1.0,
        "texts": 100,
        "threads": 2,
        "precision": "fp32",
    },
    "starters.json": {
        "starters": [
            {
                "task": "span",
                "corpus": "generated",
                "rows": 100,
                "train_seconds": 3.0,
                "metric": "exact_match",
                "value": 0.9,
                "baselines": {"first place": 0.5},
                "better_than_all": True,
            }
        ]
    },
}


def assert_tables_are_rectangular(page: str) -> None:
    blocks = [list(lines) for is_table, lines in groupby(page.splitlines(), lambda line: line.startswith("|")) if is_table]
    assert blocks
    for lines in blocks:
        assert len({line.replace("\\|", "").count(" | ") for line in lines}) == 1, lines[0]


def test_the_page_is_what_the_generator_writes() -> None:
    page = report.results_page()
    assert_tables_are_rectangular(page)
    assert page == report.PAGE.read_text(encoding="utf-8"), "to update docs/results.md: python benchmarks/report.py"


def test_a_section_without_results_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "RESULTS", tmp_path)
    assert [section() for section in OPTIONAL] == [""] * len(OPTIONAL)


def test_results_that_are_stored_later_have_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "RESULTS", tmp_path)
    for name, results in SAMPLES.items():
        (tmp_path / name).write_text(json.dumps(results | MACHINE))
    found = [text for section in OPTIONAL if (text := section())]
    assert len(found) == len(SAMPLES) and all(text.startswith("## ") and "`python benchmarks/" in text for text in found)
    assert_tables_are_rectangular("\n".join(found))
