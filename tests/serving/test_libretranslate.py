"""The API of LibreTranslate, with its clients and with the forms of requests that programs are known to send."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from serving.running_server import Running

from heedful.serving.languages import match_language
from heedful.serving.served import Models
from heedful.tasks.translation.predictor import Translator

GERMAN = "Das ist ein schöner Tag, und wir gehen nicht nach Hause, weil die Sonne scheint"
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs["translation"])


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    found = translator.predict(TEXTS)
    assert all(found)
    return found


def test_libretranslatepy(server: Running, expected: list[str]) -> None:
    client = LibreTranslateAPI(server.url)
    assert [client.translate(text, "en", "de") for text in TEXTS] == expected
    assert {"code": "en", "name": "English", "targets": ["de", "it"]} in client.languages()
    detected = client.detect("Das ist ein schöner Tag, und wir gehen nach Hause")
    assert detected[0]["language"] == "de" and detected[0]["confidence"] > 80


def test_deep_translator(server: Running, expected: list[str]) -> None:
    client = LibreTranslator(source="en", target="de", api_key="none", custom_url=f"{server.url}/")
    assert client.translate_batch(TEXTS) == expected


FIELDS = {"q": TEXTS[0], "source": "en", "target": "de"}
FORMS: dict[str, dict[str, Any]] = {
    "json": {"json": FIELDS},
    "form": {"data": FIELDS},
    "query": {"params": FIELDS},
    "multipart": {"files": {name: (None, value) for name, value in FIELDS.items()}},
    "json without a type": {"content": '{"q": "w1 w2 w3", "source": "en", "target": "de"}'},
    "variants of codes": {"json": FIELDS | {"source": "en-US", "target": "DE_at"}},
    "an unused key": {"json": FIELDS | {"api_key": ""}},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_request(form: str, server: Running, expected: list[str]) -> None:
    for path in ("/translate", "/translate/", "//translate"):
        response = server.http.post(f"{server.url}{path}", **FORMS[form])
        assert response.status_code == 200, response.text
        assert response.json() == {"translatedText": expected[0]}


def test_a_get_request_may_have_a_body(server: Running) -> None:
    response = server.http.request("GET", "/languages", content=urlencode({"api_key": "x"}))
    assert {one["code"] for one in response.json()} == {"en", "de"}
    typed = server.http.get("/languages", headers={"Content-Type": "application/json"})
    assert typed.json() == response.json()


def test_a_list_is_translated_in_its_order(server: Running, expected: list[str]) -> None:
    assert server.http.post("/translate", json=FIELDS | {"q": TEXTS}).json() == {"translatedText": expected}
    assert server.http.post("/translate", json=FIELDS | {"q": []}).json() == {"translatedText": []}


def test_alternatives_are_other_hypotheses(server: Running, translator: Translator) -> None:
    found = server.http.post("/translate", json=FIELDS | {"alternatives": 2}).json()
    (best,) = translator.translations([TEXTS[0]], beam=max(3, translator.run.search.beam), n_best=3)
    texts = list(dict.fromkeys(one.text for one in best.candidates))
    assert [found["translatedText"], *found["alternatives"]] == texts and len(texts) > 1
    several = server.http.post("/translate", json=FIELDS | {"q": TEXTS, "alternatives": 1}).json()
    assert [len(one) for one in several["alternatives"]] == [1, 1, 1]


def test_lines_and_white_space_are_kept(server: Running, expected: list[str]) -> None:
    text = f"  {TEXTS[0]}\n\n{TEXTS[1]}\t\r\n{TEXTS[2]}"
    found = server.http.post("/translate", json=FIELDS | {"q": text}).json()["translatedText"]
    assert found == f"  {expected[0]}\n\n{expected[1]}\t\r\n{expected[2]}"


def test_html_keeps_its_tags(server: Running, translator: Translator) -> None:
    """As Mastodon sends it: a list, with format html and source auto. Tags do not count for the language."""
    texts = ["this is what they have", "with all of their friends"]
    first, second = (text.replace("<", "&lt;").replace(">", "&gt;") for text in translator.predict(texts))
    page = f'<p>{texts[0]} <a title="{GERMAN}" onclick="y()">{texts[1]}</a></p>'
    found = server.http.post("/translate", json={"q": [page], "source": "auto", "target": "de", "format": "html"}).json()
    assert found["translatedText"] == [f'<p>{first} <a title="{GERMAN}">{second}</a></p>']
    assert [one["language"] for one in found["detectedLanguage"]] == ["en"]


def test_auto_finds_the_language_of_each_text(server: Running) -> None:
    texts = [
        "This is the house of my friends, and they have a dog",
        "Das ist das Haus meiner Freunde, und sie haben einen Hund",
    ]
    found = server.http.post("/translate", json={"q": texts, "source": "auto", "target": "it"}).json()
    assert [one["language"] for one in found["detectedLanguage"]] == ["en", "de"]
    single = server.http.post("/translate", json={"q": texts[1], "source": "auto", "target": "de"}).json()
    assert single["translatedText"] == texts[1] and single["detectedLanguage"]["language"] == "de"


def test_a_pair_without_a_model_is_translated_through_the_pivot(server: Running, tiny_runs: dict[str, Path]) -> None:
    found = server.http.post("/translate", json=FIELDS | {"target": "it"}).json()
    german = Translator.load(tiny_runs["translation"]).predict(TEXTS[0])
    assert found["translatedText"] == Translator.load(tiny_runs["translation"].parent / "other").predict(german)


def test_a_file_is_translated_and_downloaded(server: Running, expected: list[str]) -> None:
    content = "\n".join(TEXTS) + "\n"
    fields = {"source": "en", "target": "de"}
    found = server.http.post("/translate_file", data=fields, files={"file": ("../a.txt", content, "text/plain")})
    url = found.json()["translatedFileUrl"]
    assert url.startswith(f"{server.url}/download_file/")
    downloaded = server.http.get(url)
    assert downloaded.text == "\n".join(expected) + "\n"
    assert downloaded.headers["content-type"] == "text/plain; charset=utf-8"
    assert server.http.get("/download_file/..%2f..%2fetc%2fpasswd").status_code == 404
    refused = server.http.post("/translate_file", data=fields, files={"file": ("a.pdf", content)})
    assert refused.status_code == 400 and ".txt" in refused.json()["error"]
    not_text = server.http.post("/translate_file", data=fields, files={"file": ("a.txt", b"\xff\xfe")})
    assert not_text.status_code == 400 and "UTF-8" in not_text.json()["error"]


def test_health_and_settings(server: Running) -> None:
    assert server.http.get("/health").json() == {"status": "ok"}
    settings = server.http.get("/frontend/settings").json()
    assert settings["keyRequired"] is False and settings["charLimit"] == 5000
    assert settings["supportedFilesFormat"] == [".txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "xx"}, "xx is not supported"),
        ({"target": "xx"}, "xx is not supported"),
        ({"source": "de", "target": "en"}, "en is not supported"),
        ({"q": None}, "q: "),
        ({"format": "pdf"}, "format: "),
        ({"alternatives": 1000}, "alternatives: given 1000, expected at most 15"),
        ({"alternatives": -1}, "alternatives: "),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], message: str, server: Running) -> None:
    response = server.http.post("/translate", json=FIELDS | changes)
    assert response.status_code == 400
    assert response.json().keys() == {"error"} and message in response.json()["error"]


def test_a_missing_field_is_named(server: Running) -> None:
    response = server.http.post("/translate", json={"q": "w1", "source": "en"})
    assert (response.status_code, response.json()) == (400, {"error": "Invalid request: missing target parameter"})


def test_pairs_are_routed_to_their_models_and_through_the_pivot_only_if_there_is_one() -> None:
    pairs = [("en", "de"), ("de", "en"), ("de", "it"), ("fr", "en")]
    served: Any = [SimpleNamespace(id=f"{source}-{target}", pair=(source, target)) for source, target in pairs]
    served.append(SimpleNamespace(id="labels", pair=None))

    def route(models: Models, source: str, target: str) -> list[str]:
        return [model.id for model in models.route(source, target)]

    direct, pivot = Models(served), Models(served, "de")
    assert [route(direct, *pair) for pair in pairs] == [[f"{source}-{target}"] for source, target in pairs]
    assert route(direct, "en", "it") == [] and route(pivot, "en", "it") == ["en-de", "de-it"]
    assert route(pivot, "fr", "it") == route(pivot, "de", "fr") == []
    assert direct.targets("en") == ["de"] and pivot.targets("en") == ["de", "it"]
    assert direct.sources == ["de", "en", "fr"]


def test_language_codes_are_matched() -> None:
    served = ["en", "zh", "pt-BR", "pt-PT"]
    codes = {
        "en": "en",
        "EN-us": "en",
        "zh-Hans": "zh",
        "zh_Hant_TW": "zh",
        "pt_pt": "pt-PT",
        "pt": "pt-BR",
        "e": None,
        "": None,
    }
    assert {code: match_language(code, served) for code in codes} == codes
