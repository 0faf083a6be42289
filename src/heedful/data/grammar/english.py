"""English word forms: plurals, the third person, a and an, the present of be."""

from __future__ import annotations

TO_BE = ("am", "are", "is", "are", "are", "are")


def pluralize(noun: str) -> str:
    """cat cats, box boxes, story stories, tomato tomatoes"""
    return _with_s(noun)


def third_person(verb: str) -> str:
    """sleep sleeps, wash washes, study studies, go goes; only have is irregular here."""
    return "has" if verb == "have" else _with_s(verb)


def article(following: str) -> str:
    """an before a vowel sound"""
    sounds_like_you = following.startswith(("uni", "eu"))
    return "an" if following[0].lower() in "aeiou" and not sounds_like_you else "a"


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")
