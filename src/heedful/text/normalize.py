"""Unicode normalization and lowercasing of text before tokenization.

"é" may be one code point or two, and "ﬁ" one letter or two; nfc unifies the first, nfkc both. The same functions
are used in training, encoding and the score report, which names the normalization.
"""

from __future__ import annotations

from typing import Literal

from tokenizers import normalizers

Form = Literal["none", "nfc", "nfkc"]

FORMS: dict[Form, list[normalizers.Normalizer]] = {
    "none": [],
    "nfc": [normalizers.NFC()],
    "nfkc": [normalizers.NFKC()],
}


def normalizing_steps(form: Form, lowercase: bool) -> list[normalizers.Normalizer]:
    steps = FORMS[form]
    if lowercase:
        # Normalized again afterwards: the lowercase form of a composed letter may be decomposed (U+03AA and an accent).
        return [*steps, normalizers.Lowercase(), *steps]
    return steps


def normalize(text: str, form: Form, lowercase: bool = False) -> str:
    """Normalize a text like a tokenizer with these options; idempotent."""
    return normalizers.Sequence(normalizing_steps(form, lowercase)).normalize_str(text)


def describe_normalizing(form: Form, lowercase: bool) -> str:
    """Return the name for the score report, for example 'nfc, lower-cased'."""
    name = "not normalized" if form == "none" else form
    return f"{name}, lower-cased" if lowercase else name
