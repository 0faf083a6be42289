"""The API of LibreTranslate 1.9 (https://docs.libretranslate.com): fields as JSON, as a form, or in the query string."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NotRequired

from pydantic import ConfigDict, Field
from starlette.datastructures import UploadFile
from starlette.responses import Response
from typing_extensions import TypedDict  # pydantic reads that of typing from Python 3.12 on

from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.html_text import parse_html, split_space
from heedful.serving.languages import name_of
from heedful.serving.served import Served
from heedful.tasks.translation.translate import Translation

API = "libretranslate"
AUTO = "auto"


class TranslateFields(Body):
    q: str | list[str] = Field(description="A text, or in JSON a list of texts.")
    source: str = Field(description="Language code, or auto.")
    target: str = Field(description="Language code.")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0, description="Number of further translations.")
    api_key: str | None = None


class DetectFields(Body):
    q: str = Field(description="A text.")
    api_key: str | None = None


class FileFields(Body):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    file: Any = Field(description="A plain text file.", json_schema_extra={"type": "string", "format": "binary"})
    source: str = Field(description="Language code, or auto.")
    target: str = Field(description="Language code.")
    api_key: str | None = None


class Detected(TypedDict):
    confidence: float
    language: str


class Language(TypedDict):
    code: str
    name: str
    targets: list[str]


class TranslateAnswer(TypedDict):
    translatedText: str | list[str]
    detectedLanguage: NotRequired[Detected | list[Detected]]
    alternatives: NotRequired[list[str] | list[list[str]]]


class FileAnswer(TypedDict):
    translatedFileUrl: str


class Result(NamedTuple):
    """The translation of one text."""

    text: str
    alternatives: list[str]

    def ranked(self, rank: int) -> str:
        """The translation of this rank, or the last one."""
        return self.alternatives[min(rank, len(self.alternatives)) - 1] if rank and self.alternatives else self.text


async def translate(call: Call, given: TranslateFields) -> TranslateAnswer:
    texts = [given.q] if isinstance(given.q, str) else given.q
    call.check_texts(texts, "q")
    most = call.service.limits.max_candidates - 1
    if given.alternatives > most:
        raise ApiError(400, f"alternatives: given {given.alternatives}, expected at most {most}")
    plain = [" ".join(parse_html(text).texts) for text in texts] if given.format == "html" else texts
    languages = await source_languages(call, plain, given.source, given.target)
    found: dict[int, Result] = {}
    for source in dict.fromkeys(one["language"] for one in languages):
        chosen = [index for index, one in enumerate(languages) if one["language"] == source]
        route = find_route(call, source, given.target)
        work = translate_html if given.format == "html" else translate_texts
        results = await work(call, route, [texts[index] for index in chosen], given.alternatives)
        found |= dict(zip(chosen, results, strict=True))
    results = [found[index] for index in range(len(texts))]
    single = isinstance(given.q, str)
    answer: TranslateAnswer = {"translatedText": results[0].text if single else [result.text for result in results]}
    if given.source == AUTO:
        answer["detectedLanguage"] = languages[0] if single else languages
    if given.alternatives:
        answer["alternatives"] = results[0].alternatives if single else [result.alternatives for result in results]
    return answer


async def source_languages(call: Call, texts: Sequence[str], source: str, target: str) -> list[Detected]:
    """The language of each text: the given one, or with "auto" the most probable one that can be translated to the target."""
    models = call.service.models
    if source != AUTO:
        code = models.source(source) or (models.target(source) if source == target else None)
        if code is None:
            raise ApiError(400, f"{source} is not supported")
        return [{"confidence": 100.0, "language": code} for _ in texts]
    to = models.target(target)
    if to is None:
        raise ApiError(400, f"{target} is not supported")
    detected: list[Detected] = []
    for text in texts:
        ranked = await asyncio.to_thread(call.service.detector.rank, text)
        usable = [(code, share) for code, share in ranked if code == to or models.route(code, to)]
        if not usable:
            raise ApiError(400, f"{target} is not available as a target language from any other")
        code, share = usable[0]
        detected.append({"confidence": share, "language": code})
    return detected


def find_route(call: Call, source: str, target: str) -> list[Served]:
    """The models that translate between two languages; none: they are the same."""
    models = call.service.models
    code = models.target(target)
    if code == source or (code is None and models.source(target) == source):
        return []
    if code is None:
        raise ApiError(400, f"{target} is not supported")
    route = models.route(source, code)
    if not route:
        raise ApiError(400, f"{name_of(code)} ({code}) is not available as a target language from {name_of(source)} ({source})")
    return route


async def translate_texts(call: Call, route: Sequence[Served], texts: Sequence[str], alternatives: int) -> list[Result]:
    """Translate with one model after another; alternatives are those of the last one."""
    results = [Result(text, []) for text in texts]
    for at, served in enumerate(route):
        last = at == len(route) - 1
        results = await translate_once(call, served, [result.text for result in results], alternatives if last else 0)
    return results


async def translate_once(call: Call, served: Served, texts: Sequence[str], alternatives: int) -> list[Result]:
    """Translate with one model. The lines of a text are translated one by one, and its white space is kept."""
    parts = [[split_space(line) for line in text.splitlines(keepends=True)] for text in texts]
    cores = [core for one in parts for _, core, _ in one if core]
    options: dict[str, Any] = {}
    if alternatives:
        options = {
            "method": "beam",
            "beam": max(alternatives + 1, served.predictor.run.search.beam),
            "n_best": alternatives + 1,
        }
    found = iter(await call.predict(served, cores, options))
    results = []
    for one in parts:
        translations = [next(found) if core else None for _, core, _ in one]
        joined = []
        for rank in range(alternatives + 1):
            words = ["" if line is None else candidate(line, rank) for line in translations]
            joined.append("".join(before + word + after for (before, _, after), word in zip(one, words, strict=True)))
        best, *others = dict.fromkeys(joined)
        results.append(Result(best, others))
    return results


def candidate(translation: Any, rank: int) -> str:
    assert isinstance(translation, Translation), "a route has translation models only"
    return translation.candidates[rank].text


async def translate_html(call: Call, route: Sequence[Served], texts: Sequence[str], alternatives: int) -> list[Result]:
    """Translate the texts between the tags of pages."""
    pages = [parse_html(text) for text in texts]
    found = iter(await translate_texts(call, route, [text for page in pages for text in page.texts], alternatives))
    results = []
    for page in pages:
        own = [next(found) for _ in page.texts]
        ranked = [page.join([one.ranked(rank) for one in own]) for rank in range(alternatives + 1)]
        best, *others = dict.fromkeys(ranked)
        results.append(Result(best, others))
    return results


async def detect(call: Call, given: DetectFields) -> list[Detected]:
    call.check_texts([given.q], "q")
    ranked = await asyncio.to_thread(call.service.detector.rank, given.q)
    return [{"confidence": share, "language": code} for code, share in ranked]


async def languages(call: Call, given: None) -> list[Language]:
    models = call.service.models
    return [{"code": code, "name": name_of(code), "targets": models.targets(code)} for code in models.sources]


async def translate_file(call: Call, given: FileFields) -> FileAnswer:
    """Translate a plain text file, line by line; the result is kept in memory for a few minutes."""
    if not isinstance(given.file, UploadFile):
        raise ApiError(400, "Invalid request: missing file parameter")
    if not (given.file.filename or "").lower().endswith(".txt"):
        raise ApiError(400, "Invalid request: file format not supported; expected .txt")
    try:
        text = (await given.file.read()).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ApiError(400, "the file is not UTF-8") from None
    if "\0" in text:
        raise ApiError(400, "the file contains the character NUL")
    limits = call.service.limits
    if max(map(len, text.splitlines()), default=0) > limits.max_characters:
        raise ApiError(413, f"the file has a line of more than {limits.max_characters:,} characters")
    detected = await source_languages(call, [text[: limits.max_characters]], given.source, given.target)
    route = find_route(call, detected[0]["language"], given.target)
    (result,) = await translate_texts(call, route, [text], 0)
    name = call.service.downloads.add(result.text.encode())
    return {"translatedFileUrl": f"{call.request.base_url}download_file/{name}"}


async def download_file(call: Call, given: None) -> Response:
    content = call.service.downloads.get(call.request.path_params["name"])
    if content is None:
        raise ApiError(404, "there is no such file; translated files are kept for a few minutes")
    headers = {"Content-Disposition": 'attachment; filename="translated.txt"'}
    return Response(content, media_type="text/plain; charset=utf-8", headers=headers)


async def health(call: Call, given: None) -> dict[str, str]:
    return {"status": "ok"}


async def frontend_settings(call: Call, given: None) -> dict[str, Any]:
    service = call.service
    sources = service.models.sources
    first = sources[0] if sources else None
    targets = service.models.targets(first) if first else []
    target = targets[0] if targets else None
    return {
        "apiKeys": bool(service.keys),
        "keyRequired": bool(service.keys),
        "charLimit": service.limits.max_characters,
        "frontendTimeout": 500,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [".txt"],
        "language": {
            "source": {"code": AUTO, "name": "Auto Detect"},
            "target": {"code": target, "name": name_of(target) if target else None},
        },
    }


ENDPOINTS = [
    Endpoint("POST", "/translate", translate, "Translate texts", API, TranslateFields, TranslateAnswer),
    Endpoint("POST", "/translate_file", translate_file, "Translate a plain text file", API, FileFields, FileAnswer),
    Endpoint("GET", "/download_file/{name}", download_file, "Download a translated file", API, None, None, needs_key=False),
    Endpoint("POST", "/detect", detect, "Detect the language of a text", API, DetectFields, list[Detected]),
    Endpoint("GET", "/languages", languages, "List the languages", API, None, list[Language], needs_key=False),
    Endpoint("GET", "/health", health, "Whether the server runs", API, None, dict[str, str], False, True),
    Endpoint("GET", "/frontend/settings", frontend_settings, "Settings for user interfaces", API, needs_key=False),
]
