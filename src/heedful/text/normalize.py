"""Unicode normalization and lower-casing: what happens to text before it is cut into pieces.

"é" may be one code point or two, and "ﬁ" one letter or two; nfc settles the first, nfkc both. The same functions
serve training, encoding and the score report, which names what was done.
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
        # Composed again afterwards: the small form of a composed letter may come in two parts (U+03AA and an accent).
        return [*steps, normalizers.Lowercase(), *steps]
    return steps


def normalize(text: str, form: Form, lowercase: bool = False) -> str:
    """`text` as a tokenizer with these options reads it; a second time changes nothing."""
    return normalizers.Sequence(normalizing_steps(form, lowercase)).normalize_str(text)


def describe_normalizing(form: Form, lowercase: bool) -> str:
    """As the score report names it, for example 'nfc, lower-cased'."""
    name = "not normalized" if form == "none" else form
    return f"{name}, lower-cased" if lowercase else name
