"""The studio's files, the training runs and the grid of heads over HTTP."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from serving.running_server import Running, run_server
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.inspection.measures.alignment_heads import Aligner, AlignmentHead
from heedful.inspection.measures.alignment_links import LinkRule
from heedful.serving.runs_api import list_checkpoints, name_runs
from heedful.serving.studio import FILES
from heedful.training.metrics_log import read_metrics


@pytest.mark.parametrize(
    ("path", "name"), [("/", "index.html"), ("/studio", "index.html"), *((f"/studio/{n}", n) for n in FILES)]
)
def test_the_files_of_the_page_are_served_with_their_types(path: str, name: str, server: Running) -> None:
    response = server.http.get(path)
    assert response.status_code == 200 and response.headers["content-type"] == FILES[name]
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert response.content == (Path(heedful.__file__).parent / "studio" / name).read_bytes()


@pytest.mark.parametrize("path", ["/studio/none.js", "/studio/..%2f..%2ferrors.py", "/studio/%2e%2e/errors.py"])
def test_no_other_file_is_served(path: str, server: Running) -> None:
    assert server.http.get(path).status_code == 404


def test_models_are_listed_with_their_heads_and_analyses(server: Running) -> None:
    models = {one["id"]: one for one in server.http.get("/api/models").json()["models"]}
    translation = models["translation"]
    assert translation["translates"] and translation["generates"] and not translation["reads_turns"]
    layers = [{"layer": 0, "heads": 2}, {"layer": 1, "heads": 2}]
    assert translation["attention"] == [{"kind": kind, "layers": layers} for kind in ("encoder", "decoder", "cross")]
    assert {"attention", "heads", "lens", "explain"} <= set(translation["analyses"])
    assert not models["classification"]["generates"] and models["chat"]["reads_turns"]
    assert models["skip_thought"]["attention"] == []


def test_only_analyses_that_work_are_listed(server: Running) -> None:
    models = {one["id"]: set(one["analyses"]) for one in server.http.get("/api/models").json()["models"]}
    assert {"heads", "pruning_curve", "explain", "image"} <= models["captioning"]
    assert models["image_classification"] & {"heads", "pruning_curve", "explain", "image"} == {"explain", "image"}
    assert models["forecasting"] == {"attention", "explain", "saliency", "positions", "cost"}
    assert {"attention", "heads", "saliency", "lens", "patch"} <= models["series_classification"]


@pytest.mark.parametrize(
    ("task", "kind", "keys"),
    [
        ("series_classification", "self", ["#1", "#2", "#3"]),
        ("forecasting", "self", ["1-2", "2-3", "3-4"]),
        ("captioning", "cross", [f"{row},{column}" for row in (1, 2, 3) for column in (1, 2, 3, 4)]),
    ],
)
def test_series_tables_and_images_have_attention_and_saliency(task: str, kind: str, keys: list[str], server: Running) -> None:
    (example,) = server.http.post("/api/examples", json={"model": task, "count": 1}).json()["examples"]
    fields = {"model": task, "text": example["text"]}
    (shown,) = server.http.post("/api/attention", json=fields | {"kind": kind}).json()["maps"]
    assert shown["keys"] == keys and len(shown["values"]) == 2
    found = server.http.post("/api/inspect/saliency", json=fields).json()
    assert found["inputs"] == keys
    values = found["saliency"]["source" if kind == "cross" else "target"]
    assert {len(row) for row in values} == {len(keys)}


def test_models_are_listed_with_their_inputs_and_search_options(server: Running) -> None:
    models = {one["id"]: one for one in server.http.get("/api/models").json()["models"]}
    assert models["span"]["inputs"] == ["question", "context"] and models["classification"]["inputs"] == ["text"]
    assert models["translation"]["search"]["max_extra"] == 3 and "dictionary" not in models["translation"]["search"]
    assert models["tagging"]["search"] is None


@pytest.mark.parametrize("task", ["captioning", "forecasting", "image_classification", "node_classification", "decisions"])
def test_examples_are_those_of_the_data(task: str, server: Running, tiny_runs: dict[str, Path]) -> None:
    expected = [one._asdict() for one in heedful.load(tiny_runs[task]).example_inputs("test")][:2]
    fields = {"model": task, "split": "test", "count": 2}
    assert server.http.post("/api/examples", json=fields).json() == {"examples": expected} and expected
    refused = server.http.post("/api/examples", json=fields | {"split": "../test"})
    assert refused.status_code == 400 and "Input should be 'valid' or 'test'" in refused.json()["error"]


def test_no_examples_are_offered_without_the_data(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("image_classification", tmp_path)
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "run") == 0
    table = (tmp_path / "images.csv").rename(tmp_path / "moved.csv")
    with run_server(tmp_path / "run") as running:
        assert running.http.post("/api/examples", json={}).json() == {"examples": []}
        table.rename(tmp_path / "images.csv")
        assert running.http.post("/api/examples", json={}).json()["examples"] != []


def test_examples_are_not_longer_than_the_server_accepts(tiny_runs: dict[str, Path]) -> None:
    examples = [one._asdict() for one in heedful.load(tiny_runs["decisions"]).example_inputs("test")]
    most = max(len(one["text"]) for one in examples[:3]) - 1
    with run_server(tiny_runs["decisions"], "--max-data", str(most)) as running:
        found = running.http.post("/api/examples", json={"split": "test", "count": 3}).json()["examples"]
    assert found == [one for one in examples if len(one["text"]) <= most][:3] != examples[:3]


def test_an_image_or_a_table_may_be_longer_than_a_text(server: Running) -> None:
    for model, status in (("forecasting", 200), ("translation", 400)):
        text = "date,load,wind\n" + "".join(f"{2000 + at}-01-01,{at},1\n" for at in range(500))
        assert server.http.post("/api/predict", json={"model": model, "inputs": text}).status_code == status
    refused = server.http.post("/api/inspect/forecast", json={"model": "forecasting", "text": "1" * 100_001})
    assert refused.status_code == 400 and "expected at most 100,000 characters" in refused.json()["error"]


def test_the_example_of_generated_data_is_one_of_its_sentences(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("translation", tmp_path)
    data = 'data={builtin="reverse", batch_tokens=128}'
    assert heed("train", recipe, data, "training.steps=1", "--run", tmp_path / "toy") == 0
    with run_server(tmp_path / "toy") as running:
        (model,) = running.http.get("/api/models").json()["models"]
    expected = next(heedful.load(tmp_path / "toy").sample_texts("test")).source
    assert model["example"] == expected and heedful.load(tmp_path / "toy").unknown_words(model["example"]) == []


def test_why_is_answered_as_in_python(server: Running, tiny_runs: dict[str, Path]) -> None:
    history = ["the dog", "dog runs", "a cow"]
    chat, retrieval = heedful.ChatBot.load(tiny_runs["chat"]), heedful.Retriever.load(tiny_runs["retrieval"])
    found = server.http.post("/api/why", json={"model": "chat", "history": history, "reply": "cow eats"}).json()
    expected = chat.why(history, "cow eats")
    assert [turn["weight"] for turn in found["turns"]] == pytest.approx([turn.weight for turn in expected.turns], abs=1e-5)
    assert sum(turn["weight"] for turn in found["turns"]) == pytest.approx(1, abs=1e-5)
    found = server.http.post("/api/why", json={"model": "retrieval", "history": history, "reply": "cow eats"}).json()
    stored = retrieval.why(history, "cow eats").answers
    assert [(one["text"], one["score"]) for one in found["neighbors"]] == [
        (one.text, pytest.approx(one.score, abs=1e-5)) for one in stored
    ]
    refused = server.http.post("/api/why", json={"model": "tagging", "history": ["a"], "reply": "b"})
    assert refused.status_code == 400 and "replies to no dialogue" in refused.json()["error"]


@pytest.mark.parametrize("task", ["embedding", "skip_thought"])
def test_similarity_is_the_cosine_of_the_embeddings(task: str, server: Running, tiny_runs: dict[str, Path]) -> None:
    fields = {"model": task, "texts": ["cat sees"], "others": ["cat sees", "dog runs"]}
    (found,) = server.http.post("/api/similarity", json=fields).json()["similarity"]
    (expected,) = heedful.Embedder.load(tiny_runs[task]).similarity(["cat sees"], ["cat sees", "dog runs"]).tolist()
    assert found == pytest.approx(expected, abs=1e-5) and found[0] == pytest.approx(1, abs=1e-5)
    refused = server.http.post("/api/similarity", json=fields | {"model": "translation"})
    assert refused.status_code == 400 and refused.json()["error"].endswith("which computes no embeddings")


@pytest.mark.parametrize(("kind", "by"), [("cross", "weights"), ("encoder", "rollout"), ("decoder", "norms")])
def test_the_grid_has_the_values_of_every_head(kind: str, by: str, server: Running, tiny_runs: dict[str, Path]) -> None:
    fields = {"model": "translation", "text": "w1 w2 w3", "kind": kind, "by": by}
    found = server.http.post("/api/attention", json=fields).json()
    predictor = heedful.load(tiny_runs["translation"])
    for one in found["maps"]:
        for head, values in enumerate(one["values"]):
            chosen = {} if by == "rollout" else {"head": head}
            result = inspection.attention(predictor, "w1 w2 w3", kind=kind, layer=one["layer"], by=by, **chosen)  # type: ignore[arg-type]
            expected = result.to_dict()["map"]
            assert (one["queries"], one["keys"]) == (expected["queries"], expected["keys"])
            for row, other in zip(values, expected["values"], strict=True):
                assert row == pytest.approx(other, abs=2e-5)


def test_tokens_are_merged_into_words_and_special_tokens_are_marked(server: Running) -> None:
    fields = {"model": "translation", "text": "w1 w2 w3", "target": "w3 w2 w1", "kind": "cross"}
    tokens, words = (server.http.post("/api/attention", json={**fields, "words": one}).json() for one in (False, True))
    for by_token, by_word in zip(tokens["maps"], words["maps"], strict=True):
        assert (by_token["query_words"][-1], by_token["key_words"][-1]) == (-1, -1)  # the end token
        assert (by_word["queries"], by_word["keys"]) == (["w3", "w2", "w1"], ["w1", "w2", "w3"])
        for one, other in zip(by_token["values"], by_word["values"], strict=True):
            for query, row in enumerate(other):
                pieces = [one[at] for at, word in enumerate(by_token["query_words"]) if word == query]
                for key, value in enumerate(row):
                    sums = [sum(row[at] for at, word in enumerate(by_token["key_words"]) if word == key) for row in pieces]
                    assert value == pytest.approx(sum(sums) / len(sums), abs=1e-5)


def test_words_are_aligned_by_the_given_heads(server: Running, tiny_runs: dict[str, Path]) -> None:
    fields = {"model": "translation", "text": "w1 w2", "target": "w2 w1", "heads": "1.0", "row": 0.5}
    found = server.http.post("/api/alignment", json=fields).json()
    predictor = heedful.load(tiny_runs["translation"])
    expected = inspection.alignment(
        predictor, [("w1 w2", "w2 w1")], aligner=Aligner((AlignmentHead(1, 0),), rule=LinkRule(0.5))
    )
    assert found["pharaoh"] == expected.pharaoh()[0] and found["aligner"]["heads"] == ["1.0"]
    for row, other in zip(found["weights"], expected.weights[0].tolist(), strict=True):
        assert row == pytest.approx(other, abs=1e-6)
    wrong = server.http.post("/api/alignment", json={**fields, "heads": "7.7"})
    assert wrong.status_code == 400 and "unknown head 7.7" in wrong.json()["error"]


def test_a_wrong_kind_of_attention_is_an_error(server: Running) -> None:
    response = server.http.post("/api/attention", json={"model": "translation", "text": "w1", "kind": "none"})
    assert response.status_code == 400 and "expected one of" in response.json()["error"]


def test_runs_are_listed_with_their_metrics_and_checkpoints(server: Running, tiny_runs: dict[str, Path]) -> None:
    response = server.http.get("/api/runs")
    runs = {one["name"]: one for one in response.json()["runs"]}
    assert runs.keys() >= tiny_runs.keys() and str(tiny_runs["translation"].parent) not in response.text
    assert runs["translation"]["task"] == "translation"
    metrics = server.http.get("/api/runs/translation/metrics").json()
    assert metrics["records"] == read_metrics(tiny_runs["translation"] / "metrics.jsonl") and metrics["records"]
    (checkpoint,) = server.http.get("/api/runs/translation/checkpoints").json()["checkpoints"]
    assert checkpoint["verified"] and checkpoint["best"] and checkpoint["metrics"]["loss"] == runs["translation"]["value"]


@pytest.mark.parametrize("name", ["none", "..", "%2e%2e%2f", "..%2ftranslation"])
def test_a_request_names_no_path(name: str, server: Running) -> None:
    assert server.http.get(f"/api/runs/{name}/metrics").status_code == 404


def test_a_damaged_checkpoint_is_reported_without_its_path(tmp_path: Path, tiny_runs: dict[str, Path]) -> None:
    run = tmp_path / "mine"
    shutil.copytree(tiny_runs["translation"], run, symlinks=True)
    weights = next((run / "checkpoints" / "step-2").glob("model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (found,) = list_checkpoints("mine", run)
    assert not found["verified"] and "model.safetensors" in found["problem"] and str(tmp_path) not in json.dumps(found)


def test_runs_of_the_same_name_get_a_number(tmp_path: Path) -> None:
    named = name_runs([tmp_path / "a" / "mine", tmp_path / "b" / "mine", tmp_path / "a" / "mine"])
    assert named == {"mine": tmp_path / "a" / "mine", "mine-2": tmp_path / "b" / "mine"}
