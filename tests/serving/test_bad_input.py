"""Wrong requests: a clear error in the form of the API, and others are not disturbed."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any

import pytest
from serving.running_server import Running
from starlette.requests import Request

from heedful.serving.body import read_body
from heedful.serving.failures import ApiError
from heedful.serving.limits import Limits

MEGABYTE = "w" * 2**20
GOOD = {"q": "w1", "source": "en", "target": "de"}


def translation(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


JSON = {"content-type": "application/json"}
BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "not JSON": (b'{"q": ', JSON, 400, "not valid JSON at character 6"),
    "a JSON list": (b"[1]", JSON, 400, "is a JSON list; expected an object"),
    "NaN": (b'{"q": NaN}', JSON, 400, "not valid JSON"),
    "an integer of many digits": (b'{"q": ' + b"9" * 10_000 + b"}", JSON, 400, "not valid JSON"),
    "deep JSON": (b'{"q": ' + b"[" * 100_000, JSON, 400, "nested too deeply"),
    "deep JSON that ends": (b'{"q": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", JSON, 400, "nested too deeply"),
    "JSON that is not UTF-8": (b'{"q": "\xff"}', JSON, 400, "not UTF-8"),
    "a form that is not UTF-8": (b"q=%ff&source=en&target=de", {}, 400, "not UTF-8"),
    "half of a surrogate pair": (b'{"q": "\\ud800", "source": "en", "target": "de"}', JSON, 400, "surrogate"),
    "NUL": (translation(q="a\0b"), JSON, 400, "NUL"),
    "NUL in a form": (b"q=%00&source=en&target=de", {}, 400, "NUL"),
    "a word of a megabyte": (translation(q=MEGABYTE), JSON, 413, "larger than 262,144 bytes"),
    "a word of 200,000 letters": (translation(q="w" * 200_000), JSON, 400, "expected at most 5,000"),
    "100,000 items": (translation(q=["a"] * 100_000), JSON, 413, "larger than"),
    "10,000 items": (translation(q=["a"] * 10_000), JSON, 400, "given 10,000 texts, expected at most 50"),
    "5,000 lines": (translation(q=["a\n" * 2_500] * 2), JSON, 413, "expected at most 500"),
    "a number as a text": (translation(q=5), JSON, 400, "q: "),
    "many fields": (b"&".join(b"a%d=1" % i for i in range(1000)), {}, 400, "more than 100 fields"),
    "broken multipart": (b"--x\r\nnothing", {"content-type": "multipart/form-data; boundary=x"}, 400, ""),
    "multipart without a boundary": (b"--x", {"content-type": "multipart/form-data"}, 400, "multipart"),
    "nothing": (b"", {}, 400, "missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_body_is_a_clear_error_and_disturbs_no_one(case: str, server: Running) -> None:
    body, headers, status, message = BAD[case]
    others: list[int] = []

    def ask() -> None:
        others.append(server.http.post("/translate", json=GOOD).status_code)

    beside = threading.Thread(target=ask)
    beside.start()
    response = server.http.post("/translate", content=body, headers=headers)
    beside.join()
    assert (response.status_code, others) == (status, [200]), response.text
    assert response.json().keys() == {"error"} and message in response.json()["error"]


def test_errors_have_the_form_of_their_api(server: Running) -> None:
    for path, status in (("/v1/completions", 400), ("/v1/nothing", 404)):
        response = server.http.post(path, content=b"{")
        assert response.status_code == status
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    assert isinstance(server.http.post("/api/predict", content=b"{").json()["error"], str)
    assert isinstance(server.http.get("/nothing").json()["error"], str)


def test_other_methods_are_refused(server: Running) -> None:
    response = server.http.get("/translate")
    assert response.status_code == 405 and response.headers["allow"] == "POST"
    assert server.http.request("PATCH", "/translate").status_code == 405
    assert server.http.head("/livez").status_code == 200


def test_texts_without_words_or_with_strange_ones_are_answered(server: Running) -> None:
    texts = ["", " \n ", "\u200b", "\U0001f600" * 50, "\ufffd", "a" * 5000, "\u202e\u0301" * 100, "x\x1b[31m"]
    response = server.http.post("/translate", json=GOOD | {"q": texts})
    assert response.status_code == 200 and response.json()["translatedText"][:2] == ["", " \n "]
    for model in ("classification", "tagging", "masked", "span", "retrieval", "language", "embedding"):
        for text in texts:
            options = {"length": 2} if model == "language" else {}
            found = server.http.post("/api/predict", json={"model": model, "inputs": text, "options": options})
            assert found.status_code in (200, 400), (model, text, found.text)


def send(server: Running, data: bytes, *, wait: float = 5) -> bytes:
    """Send bytes and read what comes until the server closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(data)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except TimeoutError:
            pass
    return received


def test_broken_http_is_refused(server: Running) -> None:
    assert b" 400 " in send(server, b"GET\r\n\r\n")
    assert b" 400 " in send(server, b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n")
    assert server.http.get("/livez").status_code == 200


def test_a_body_that_stops_arriving_is_given_up(server: Running) -> None:
    """The client leaves in the middle of its body: nothing remains, and nothing is logged as a bug."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.05)
    assert server.http.post("/translate", json=GOOD).status_code == 200


def test_a_body_that_arrives_too_slowly_is_refused() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(5)
        return {"type": "http.request", "body": b"", "more_body": False}

    request = Request({"type": "http", "headers": []}, receive)
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_body(request, Limits(body_timeout=0.01)))
    assert refused.value.status == 408 and refused.value.headers == {"Connection": "close"}
