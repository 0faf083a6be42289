"""Predictions of every task, the analyses, and the OpenAPI document with its fuzzer."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from serving.running_server import Running
from tiny_tasks import example_of, quick_options

import heedful
from heedful import inspection
from heedful.inspection.result import to_json
from heedful.serving.inspect_api import ANALYSES, signature_of
from heedful.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_task_predicts_as_in_python(task: str, server: Running, tiny_runs: dict[str, Path]) -> None:
    texts, options = list(example_of(task).inputs), quick_options(task)
    response = server.http.post("/api/predict", json={"model": task, "inputs": texts, "options": options})
    assert response.status_code == 200, response.text
    predictions = heedful.load(tiny_runs[task]).predictions(texts, **options)
    expected = [json.loads(to_json(prediction.to_dict())) for prediction in predictions]
    found = response.json()
    assert (found["model"], found["task"]) == (task, task)
    assert [shorten(one) for one in found["predictions"]] == [shorten(one) for one in expected] and expected


@pytest.mark.parametrize("task", ["forecasting", "series_classification", "node_classification", "decisions"])
def test_an_empty_table_or_graph_is_refused(task: str, server: Running) -> None:
    response = server.http.post("/api/predict", json={"model": task, "inputs": [""]})
    assert response.status_code == 400, response.text


def shorten(value: Any) -> Any:
    """Numbers to four digits: those of a batch differ in the last ones."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: shorten(part) for name, part in value.items()}
    return [shorten(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dictionary": "/etc/passwd"}, "unknown option 'dictionary'"),
        ({"prefixes": "/etc/passwd"}, "unknown option 'prefixes'"),
        ({"beam": 10**6}, "options.beam: given 1000000, expected at most 16"),
        ({"max_length": 10**6}, "options.max_length"),
        ({"beam": [1]}, "options.beam: expected a number or a text"),
        ({"beam": -1}, "beam"),
        ({"method": "x"}, "method"),
    ],
)
def test_options_that_name_files_or_are_too_large_are_refused(options: dict[str, Any], message: str, server: Running) -> None:
    response = server.http.post("/api/predict", json={"model": "translation", "inputs": "w1", "options": options})
    assert response.status_code == 400 and message in response.json()["error"]


def test_options_are_honored(server: Running, tiny_runs: dict[str, Path]) -> None:
    fields = {"model": "translation", "inputs": "w1 w2 w3", "options": {"beam": 2, "n_best": 2, "max_length": 3}}
    (found,) = server.http.post("/api/predict", json=fields).json()["predictions"]
    (best,) = heedful.Translator.load(tiny_runs["translation"]).translations(["w1 w2 w3"], beam=2, n_best=2, max_length=3)
    assert [one["text"] for one in found["candidates"]] == [one.text for one in best.candidates]


def test_the_model_must_be_named_among_several(server: Running) -> None:
    missing = server.http.post("/api/predict", json={"inputs": "w1"})
    assert missing.status_code == 400 and "expected one of: translation, other" in missing.json()["error"]
    unknown = server.http.post("/api/predict", json={"model": "../translation", "inputs": "w1"})
    assert unknown.status_code == 404
    listed = server.http.get("/api/models").json()["models"]
    assert {"source": "en", "target": "de"} in [one["languages"] for one in listed]


TEXT_ANALYSES: dict[str, dict[str, Any]] = {
    "attention": {"kind": "cross", "layer": 0, "by": "norms"},
    "lens": {"target": "w2 w1"},
    "saliency": {"steps": 2},
    "alternatives": {"position": 1, "search": {"beam": 1}},
    "ablate": {"heads": ["cross.0.0"]},
    "patch": {"other": "w1 w9"},
    "explain": {"head": 1},
}


@pytest.mark.parametrize("name", TEXT_ANALYSES)
def test_an_analysis_of_a_text_is_that_of_python(name: str, server: Running, tiny_runs: dict[str, Path]) -> None:
    options = dict(TEXT_ANALYSES[name])
    fields = {"model": "translation", "text": "w1 w2", "options": options}
    response = server.http.post(f"/api/inspect/{name}", json=fields)
    assert response.status_code == 200, response.text
    predictor = heedful.load(tiny_runs["translation"])
    if search := options.pop("search", None):
        options["config"] = predictor.search_config_from(search)
    expected = getattr(inspection, name)(predictor, "w1 w2", **options).to_dict()
    assert shorten(response.json()) == shorten(json.loads(to_json(expected)))


def test_an_analysis_of_a_model_does_not_show_its_folder(server: Running, tiny_runs: dict[str, Path]) -> None:
    response = server.http.post("/api/inspect/summary", json={"model": "translation"})
    assert response.json()["checkpoint"] == "translation/checkpoints/step-2"
    assert str(tiny_runs["translation"].parent) not in response.text
    heads = server.http.post("/api/inspect/heads", json={"model": "translation", "options": {"sentences": 3}})
    assert heads.json()["sentences"] == 3


@pytest.mark.parametrize(
    ("name", "fields", "status", "message"),
    [
        ("nothing", {}, 404, "unknown analysis 'nothing'"),
        ("heads", {"options": {"data": "/etc/passwd"}}, 400, "heads has no argument 'data'"),
        ("heads", {"options": {"conllu": "/etc/passwd"}}, 400, "heads has no argument 'conllu'"),
        ("heads", {"options": {"sentences": 10**6}}, 400, "options.sentences: expected numbers from 0 to 1,000"),
        ("lens", {}, 400, "lens: missing text"),
        ("lens", {"text": "w1", "options": {"target": "w" * 6000}}, 400, "expected at most 5,000 characters"),
        ("lens", {"text": "w1", "options": {"search": {"dictionary": "/etc/passwd"}}}, 400, "unknown option 'dictionary'"),
        ("lens", {"text": "w1", "options": {"search": {"beam": 1000}}}, 400, "expected at most 16"),
        ("lens", {"text": "w1", "options": {"search": 1}}, 400, "options.search"),
        ("summary", {"options": {"search": {"beam": 1}}}, 400, "options.search"),
        ("document", {"text": "w1"}, 400, "pools its states without attention"),
    ],
)
def test_wrong_arguments_of_analyses(name: str, fields: dict[str, Any], status: int, message: str, server: Running) -> None:
    response = server.http.post(f"/api/inspect/{name}", json={"model": "translation", **fields})
    assert response.status_code == status and message in response.json()["error"]


def test_every_analysis_is_served_and_none_takes_a_path() -> None:
    assert {"attention", "forecast", "heads", "saliency", "cost"} <= set(ANALYSES) and len(ANALYSES) == 20
    paths = {(name, part) for name in ANALYSES for part, kind in signature_of(name).items() if "Path" in str(kind)}
    assert paths == {("heads", "data"), ("heads", "conllu")}


def test_the_document_describes_every_path(server: Running) -> None:
    found = server.http.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    paths = {"/translate", "/v1/chat/completions", "/api/predict", "/api/inspect/{analysis}", "/metrics", "/readyz"}
    assert paths <= found["paths"].keys()
    assert set(found["paths"]["/translate"]["post"]["requestBody"]["content"]) >= {"application/json", "multipart/form-data"}


EXAMPLES = int(os.environ.get("HEED_FUZZ", "3"))  # for each operation, of valid and of invalid fields


def test_the_fuzzer_finds_no_server_error(server: Running) -> None:
    """Every operation with arbitrary values of its fields, also of other types than the document names."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    models = [model["id"] for model in server.http.get("/api/models").json()["models"]]
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode if operation.method == "post" else [schemathesis.GenerationMode.POSITIVE]:

            @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                nonlocal tried
                tried += 1
                if isinstance(case.body, dict) and tried % 3:  # otherwise few requests would reach a model
                    known = {"model": models[tried % len(models)], "source": "en", "target": "de"}
                    case.body |= {name: value for name, value in known.items() if name in case.body}
                started = time.monotonic()
                response = case.call(timeout=20)
                case.validate_response(response, checks=[not_a_server_error])
                assert time.monotonic() - started < 15
                assert response.status_code in (200, 400, 401, 403, 404, 405, 413, 415), (case.path, response.status_code)

            call()
    assert tried > 50
    assert server.http.get("/readyz").status_code == 200
