"""docs/results.md is what `python benchmarks/report.py` writes, and sections without results are left out."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import report
import sections
from label_rows import HEAD, label_rows
from language_rows import DATA
from sections import checks, dialogue, encoders, processes, quality, serving

OPTIONAL = (
    checks.faults,
    checks.planted,
    checks.texts,
    dialogue.chat,
    encoders.classification_cpu,
    encoders.document_sentences,
    encoders.fashion_mnist,
    encoders.masked_training,
    encoders.vision_training,
    processes.backtranslation,
    processes.bulk,
    processes.distributed,
    processes.plans,
    processes.preparation,
    quality.no_options,
    quality.starters,
    serving.generation,
    serving.load,
    serving.soak,
)
SERVED = {
    "requests_per_second": 30.0, "target_tokens_per_second": 300.0, "p50_seconds": 0.1, "p99_seconds": 0.2, "equal": 9,
    "ties": 1, "different": 0, "mixed_up": 0, "errors": {}, "lost": 0, "server_cpu": 1.0, "generator_cpu": 0.1,
}  # fmt: skip
MACHINE = {"machine": "a CPU", "torch": "2.0", "date": "2026-01-01"}
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
    "serve_cpu.json": {
        "part": "cpu",
        "model": {"dim": 16, "layers": 1, "vocabulary": 100},
        "systems": {"heedful": SERVED, "one at a time": SERVED, "empty handler": SERVED},
        "offline": {"heedful": {"sentences_per_second": 40.0}},
        "ratios": {"heedful / one at a time": 1.0, "heedful / offline": 0.75},
        "clients": 4,
        "seconds": 2.0,
        "http_parser": "h11",
    },
    "soak.json": {
        "minutes": 1.0,
        "capacity_per_second": 10.0,
        "capacity_after_per_second": 10.0,
        "overload": {
            "sent_per_second": 100.0,
            "answered": 600,
            "answered_per_second": 10.0,
            "p99_seconds": 1.0,
            "later_than_deadline": 0,
            "deadline_exceeded_504": 0,
            "refused_429": 5400,
            "refused_without_retry_after": 0,
            "other_statuses": {},
            "lost": 0,
            "clients_left": 5,
            "deadline_seconds": 30.0,
        },
        "memory": {"start_mb": 300.0, "end_mb": 301.0, "slope_mb_per_minute": 1.0},
        "idle": {"heedful_queue_depth": 0.0},
        "sigterm": {"answered_after_the_signal": 4, "accepted_and_lost": 0},
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
                "machine": "a CPU",
                "torch": "2.0",
                "date": "2026-01-01",
            }
        ]
    },
    "generate_cpu.json": {
        "cpu": {"threads": 2, "1 sequence": {"heedful": {"tokens_per_second": 9.0, "tokens_equal_to_ours": 1.0}}},
        "machine": {"machine": "a CPU", "torch": "2.0", "date": "2026-01-01"},
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


def test_models_and_baselines_are_sorted_by_accuracy_within_their_data() -> None:
    rows = label_rows(sections.RESULTS / "language", sections.read("baselines.json"))
    at = HEAD.index("test accuracy")
    for _, group in groupby(rows, lambda row: row[0]):
        accuracies = [float(row[at].partition("%")[0]) for row in group]
        assert len(accuracies) > 2 and accuracies == sorted(accuracies, reverse=True)
    assert len({row[0] for row in rows}) == len([*groupby(rows, lambda row: row[0])]) == len(DATA)


def test_a_section_without_results_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "RESULTS", tmp_path)
    assert [section() for section in OPTIONAL] == [""] * len(OPTIONAL)


def test_results_that_are_stored_later_have_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "RESULTS", tmp_path)
    for name, results in SAMPLES.items():
        (tmp_path / name).write_text(json.dumps(MACHINE | results))
    found = [text for section in OPTIONAL if (text := section())]
    assert len(found) == len(SAMPLES) and all(text.startswith("## ") and "`python benchmarks/" in text for text in found)
    assert_tables_are_rectangular("\n".join(found))
