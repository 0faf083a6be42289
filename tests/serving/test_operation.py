"""Running a server: access, overload, deadlines, clients that leave, signals, metrics, logs."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving.running_server import Running, run_server
from workshop import heed

from heedful.serving.security import find_key, hash_of, host_is_allowed, new_key, origin_is_allowed
from heedful.tasks.classification.predictor import Classifier, LabelPrediction

FIELDS = {"inputs": "the cat"}
SECRET = "xylophone"  # a text that must not appear in logs and metrics


def slow_down(seconds: float) -> None:
    """Make every batch of a classifier take this long. Called in the process of the server."""
    own = Classifier.predictions

    def slow(self: Classifier, texts: Iterable[str], **options: Any) -> Iterator[LabelPrediction]:
        time.sleep(seconds)
        return own(self, texts, **options)

    Classifier.predictions = slow  # type: ignore[method-assign, assignment]


def metric(running: Running, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", running.http.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_for_depth(running: Running, depth: int) -> None:
    """Wait until this number of texts waits."""
    until = time.monotonic() + 10
    while (found := metric(running, "heedful_queue_depth")) != depth:
        assert time.monotonic() < until, found
        time.sleep(0.01)


def ask(running: Running, text: str = "the cat") -> httpx.Response:
    return running.http.post("/api/predict", json={"inputs": text})


def test_overload_is_refused_and_what_was_accepted_is_answered(tiny_runs: dict[str, Path]) -> None:
    options = ("--max-queue", "8", "--max-batch-tokens", "4")
    with run_server(tiny_runs["classification"], *options, before=lambda: slow_down(0.05)) as running:
        ask(running)  # so that the rate is known
        with ThreadPoolExecutor(40) as clients:
            responses = list(clients.map(lambda _: ask(running), range(40)))
        codes = [response.status_code for response in responses]
        assert set(codes) == {200, 429} and codes.count(200) >= 4
        for response in responses:
            if response.status_code == 429:
                assert 1 <= int(response.headers["retry-after"]) <= 60
        assert ask(running).status_code == 200
        assert metric(running, 'heedful_rejected_total{reason="queue full"}') == codes.count(429)


def test_sigterm_loses_no_accepted_request(tiny_runs: dict[str, Path]) -> None:
    with run_server(tiny_runs["classification"], "--max-batch-tokens", "12", before=lambda: slow_down(0.5)) as running:
        with ThreadPoolExecutor(12) as clients:
            asked = [clients.submit(ask, running, "the cat 0")]
            time.sleep(0.2)  # it is being computed while the others wait
            asked += [clients.submit(ask, running, f"the cat {i}") for i in range(1, 12)]
            wait_for_depth(running, 11)
            running.process.send_signal(signal.SIGTERM)
            wait_until_not_ready(running)
            late = ask(running)
            answers = [one.result() for one in asked]
        assert [one.status_code for one in answers] == [200] * 12
        assert [one.json()["predictions"][0]["texts"] for one in answers] == [[f"the cat {i}"] for i in range(12)]
        assert late.status_code == 503 and "stopping" in late.json()["error"] and "retry-after" in late.headers
        assert running.process.wait(timeout=10) == 0


def wait_until_not_ready(running: Running) -> None:
    until = time.monotonic() + 5
    while running.http.get("/readyz").status_code != 503:
        assert time.monotonic() < until
    assert running.http.get("/livez").status_code == 200


def test_ctrl_c_ends_an_idle_server_quietly(tiny_runs: dict[str, Path]) -> None:
    with run_server(tiny_runs["classification"]) as running:
        assert ask(running).status_code == 200
        running.process.send_signal(signal.SIGINT)
        _, messages = running.process.communicate(timeout=10)
        assert (running.process.returncode, messages) == (0, "")


def test_a_deadline_is_kept_and_a_client_that_leaves_frees_its_place(tiny_runs: dict[str, Path]) -> None:
    options = ("--deadline", "0.4", "--max-queue", "4", "--max-batch-tokens", "1")
    with run_server(tiny_runs["classification"], *options, before=lambda: slow_down(0.7)) as running:
        started = time.monotonic()
        late = ask(running)
        assert late.status_code == 504 and 0.3 < time.monotonic() - started < 0.65
        host, port = running.url.removeprefix("http://").split(":")
        wait_for_depth(running, 0)
        head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n"
        leaving = [socket.create_connection((host, int(port))) for _ in range(2)]
        for connection in leaving:
            connection.sendall(head + b'{"inputs": "a dog"} ')
        wait_for_depth(running, 2)
        assert ask(running).status_code == 429  # this client's share is used up
        for connection in leaving:
            connection.close()
        wait_for_depth(running, 0)
        assert metric(running, 'heedful_requests_total{api="heedful",code="499",route="/api/predict"}') == 2


def test_keys_are_required_where_there_are_any(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    key, line = new_key()
    file = tmp_path / "keys"
    file.write_text(f"# keys\n\n{'0' * 64} someone\n{line}\n")
    with run_server(f"{tiny_runs['translation']}=en-de", "--api-keys", file) as running:
        http, fields = running.http, {"q": "w1", "source": "en", "target": "de"}
        prompt = {"model": "translation", "prompt": "w1"}
        for wrong in ({}, {"api_key": ""}, {"api_key": f"{key}x"}, {"api_key": line}):
            refused = http.post("/translate", json=fields | wrong)
            assert refused.status_code == 403 and refused.json() == {"error": "Invalid API key"}
        assert http.post("/translate", json=fields | {"api_key": key}).status_code == 200
        assert http.post("/translate", params=fields | {"api_key": key}).status_code == 200
        refused = http.post("/v1/completions", json=prompt, headers={"Authorization": "Bearer x"})
        assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        bearer = {"Authorization": f"Bearer {key}"}
        assert http.post("/v1/completions", json=prompt, headers=bearer).status_code == 200
        for path in ("/livez", "/readyz", "/health", "/languages", "/frontend/settings", "/openapi.json"):
            assert http.get(path).status_code == 200
        for path in ("/metrics", "/version", "/v1/models", "/api/models"):
            assert (http.get(path).status_code, http.get(path, headers=bearer).status_code) == (401, 200)
        found = http.get("/metrics", headers=bearer).text
        assert key not in found and line not in found and line[:12] not in found


def test_keys_are_found_by_their_hashes() -> None:
    (first, one), (second, two) = new_key(), new_key()
    assert first != second and len(first) > 40 and one == hash_of(first)
    assert find_key(second, [one, two]) == two and find_key(one, [one, two]) is None and find_key("\ud800", [one]) is None


def test_other_hosts_and_origins_are_refused(tiny_runs: dict[str, Path]) -> None:
    page = "https://page.example"
    options = ("--cors", page, "--allow-host", "Models.example")
    with run_server(tiny_runs["classification"], *options) as running:

        def status(method: str = "POST", **headers: str) -> int:
            return running.http.request(method, "/api/predict", json=FIELDS, headers=headers).status_code

        assert [status(Host=host) for host in ("localhost", "models.example:80", "127.0.0.1:9")] == [200] * 3
        assert [status(Host=host) for host in ("evil.example", "localhost.evil.example", "", "[")] == [403] * 4
        own = running.url.removeprefix("http://")
        assert status(Origin=running.url) == status(Origin=page) == 200
        assert [status(Origin=origin) for origin in ("https://evil.example", "null", f"http://{own}.evil.example")] == [403] * 3
        allowed = running.http.post("/api/predict", json=FIELDS, headers={"Origin": page}).headers
        assert allowed["access-control-allow-origin"] == page and "access-control-allow-credentials" not in allowed
        asked = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        assert running.http.options("/api/predict", headers=asked).status_code == 200


def test_names_of_hosts_and_origins() -> None:
    assert [host_is_allowed(host, ["a.org"]) for host in ("A.org:5", "[::1]:80", "10.0.0.1", "LOCALHOST")] == [True] * 4
    assert [host_is_allowed(host, ["a.org"]) for host in ("b.org", "xa.org", "10.0.0.1.evil", "[::1", "")] == [False] * 5
    assert origin_is_allowed("http://a.org:5", "a.org:5", []) and not origin_is_allowed("http://a.org", "a.org:5", [])


def test_replies_have_security_headers_and_no_wildcard(server: Running) -> None:
    for response in (server.http.get("/livez"), server.http.get("/nothing"), server.http.post("/translate")):
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers and "server" not in response.headers


def test_replies_are_not_delayed_by_the_network_stack(server: Running) -> None:
    """Nagle's algorithm with delayed acknowledgments would take 40 ms for each."""
    times = []
    for _ in range(9):
        started = time.perf_counter()
        server.http.get("/livez")
        times.append(time.perf_counter() - started)
    assert sorted(times)[4] < 0.03


def test_ready_is_a_model_that_gives_its_recorded_output(tiny_runs: dict[str, Path]) -> None:
    def forget() -> None:
        """Change the outputs of the model after a certain text."""
        own = Classifier.predictions

        def changed(self: Classifier, texts: Iterable[str], **options: Any) -> Iterator[LabelPrediction]:
            for one in own(self, texts, **options):
                self.damaged = getattr(self, "damaged", False) or "damage" in one.texts  # type: ignore[attr-defined]
                yield one._replace(labels=("maybe",)) if self.damaged else one  # type: ignore[attr-defined]

        Classifier.predictions = changed  # type: ignore[method-assign, assignment]

    with run_server(tiny_runs["classification"], before=forget) as running:
        assert running.http.get("/readyz").json() == {"status": "ready"}
        ask(running, "damage")
        time.sleep(1.1)  # a correct canary is not computed again for a second
        not_ready = running.http.get("/readyz")
        assert not_ready.status_code == 503 and "canary" in not_ready.json()["error"]


def test_the_version_names_the_weights(server: Running, tiny_runs: dict[str, Path]) -> None:
    found = server.http.get("/version").json()
    weights = {model["id"]: model["weights"] for model in found["models"]}
    assert set(map(len, weights.values())) == {64} and weights["translation"] != weights["other"]
    from hashlib import sha256

    (file,) = (tiny_runs["tagging"] / "checkpoints" / "step-2").glob("model.safetensors")
    assert weights["tagging"] == sha256(file.read_bytes()).hexdigest()


def test_neither_logs_nor_metrics_have_text_or_addresses(tiny_runs: dict[str, Path]) -> None:
    def break_classifier() -> None:
        def broken(self: Classifier, texts: Iterable[str], **options: Any) -> Iterator[LabelPrediction]:
            if SECRET in "".join(texts):
                raise RuntimeError(f"cannot compute {list(texts)}")
            return own(self, texts, **options)

        own = Classifier.predictions
        Classifier.predictions = broken  # type: ignore[method-assign, assignment]

    with run_server(tiny_runs["classification"], before=break_classifier) as running:
        failed = running.http.post(f"/api/predict?x={SECRET}", json={"inputs": SECRET})
        assert (failed.status_code, failed.json()) == (500, {"error": "internal error"})
        assert running.http.get(f"/{SECRET}").status_code == 404
        assert running.http.post("/api/predict", json={"model": SECRET, "inputs": "a"}).status_code == 404
        assert running.http.post("/api/predict", json=FIELDS).status_code == 200
        metrics = running.http.get("/metrics").text
        code, messages = running.stop()
    assert code == 0
    assert "RuntimeError" in messages and "in broken" in messages
    for text in (messages, metrics):
        assert SECRET not in text and "127.0.0.1" not in text
    assert 'heedful_requests_total{api="heedful",code="500",route="/api/predict"} 1.0' in metrics
    names = ("request_seconds", "queue_seconds", "time_to_first_token_seconds", "batch_tokens", "padding_ratio")
    assert all(f"heedful_{name}_count" in metrics for name in names)
    assert 'heedful_tokens_total{dir="in"}' in metrics and "heedful_model_info{" in metrics


def test_many_clients_get_their_own_replies(server: Running) -> None:
    texts = [f"the cat {i}" for i in range(60)]
    with ThreadPoolExecutor(12) as clients:
        found = list(clients.map(lambda text: tag(server, text), texts))
    assert found == [text.split() for text in texts]


def tag(server: Running, text: str) -> list[str]:
    response = server.http.post("/api/predict", json={"model": "tagging", "inputs": text})
    words: list[str] = response.json()["predictions"][0]["words"]
    return words


def test_a_port_in_use_is_an_error(server: Running, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    port = server.url.rpartition(":")[2]
    assert heed("serve", tiny_runs["classification"], "--port", port) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "given no run folder"),
        (["{run}", "--cors", "*"], "--cors: given '*', expected an origin"),
        (["{run}", "--cors", "https://*.example"], "expected an origin"),
        (["{run}", "--api-keys", "{folder}/bad"], "line 1 is not the SHA-256 of a key"),
        (["{run}", "--pivot", "fr"], "--pivot: given 'fr'"),
        (["{run}", "{run}"], "two run folders are named 'translation'"),
        (["{run}=en"], "expected a run folder, or a folder and its languages"),
        (["{other}=en-de"], "translates nothing"),
    ],
)
def test_wrong_options_are_refused_before_the_server_listens(
    arguments: list[str], message: str, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").write_text("not a hash\n")
    paths = {"run": tiny_runs["translation"], "other": tiny_runs["tagging"], "folder": tmp_path}
    assert heed("serve", "--port", "0", *(argument.format(**paths) for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_new_key_is_printed_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("serve", "--new-key") == 0
    key, line = (row.split()[1] for row in capsys.readouterr().out.splitlines())
    assert hash_of(key) == line


def test_a_missing_extra_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("heedful.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert heed("serve", tiny_runs["classification"]) == 2
    assert "needs uvicorn" in (told := capsys.readouterr().err) and "pip install 'heedful[serve]'" in told


def test_the_server_writes_no_files(tiny_runs: dict[str, Path]) -> None:
    folder = tiny_runs["translation"]

    def written() -> set[tuple[str, int]]:
        return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*")}

    before = written()
    with run_server(f"{folder}=en-de") as running:
        files = {"file": ("a.txt", "w1\n" * 400)}
        found = running.http.post("/translate_file", data={"source": "en", "target": "de"}, files=files)
        assert found.status_code == 200
    assert written() == before


def test_the_container_runs_as_an_ordinary_user() -> None:
    root = Path(__file__).parents[2]
    lines = (root / "Containerfile").read_text().splitlines()
    assert lines.index("USER 10001") > max(number for number, line in enumerate(lines) if line.startswith(("RUN", "COPY")))
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert copied and all((root / name).exists() for name in copied)
    assert lines[-1].startswith('ENTRYPOINT ["heed", "serve"')
