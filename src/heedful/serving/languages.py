"""Language codes of requests, matched with those that are served, and the names of languages."""

from __future__ import annotations

from collections.abc import Iterable

NAMES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "gu": "Gujarati",
    "ha": "Hausa",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "ms": "Malay",
    "mt": "Maltese",
    "nb": "Norwegian Bokmål",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tl": "Tagalog",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}


def match_language(code: str, served: Iterable[str]) -> str | None:
    """The served code that a BCP 47 tag means: itself, a shorter one (zh-Hans: zh), or another variant (pt: pt-br)."""
    known = {one.lower().replace("_", "-"): one for one in served}
    parts = code.lower().replace("_", "-").split("-")
    for length in range(len(parts), 0, -1):
        if (prefix := "-".join(parts[:length])) in known:
            return known[prefix]
    return next((one for name, one in known.items() if name.split("-")[0] == parts[0]), None)


def name_of(code: str) -> str:
    return NAMES.get(code.lower().replace("_", "-").split("-")[0], code)
