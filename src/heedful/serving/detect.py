"""Language identification among the languages that are served (py3langid: naive Bayes over byte n-grams, no network)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from heedful.serving.languages import match_language


class Identifier(NamedTuple):
    model: Any
    codes: dict[str, str]  # of the model -> that are served


class Detector:
    """Identifies the language of a text among `languages`."""

    def __init__(self, languages: Sequence[str]) -> None:
        self.languages = list(languages)

    @cached_property
    def identifier(self) -> Identifier:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        codes = {code: one for one in self.languages if (code := match_language(one, model.labels)) is not None}
        if codes:
            model.set_languages(sorted(codes))
        return Identifier(model, codes)

    def rank(self, text: str) -> list[tuple[str, float]]:
        """The languages with their probability in percent, most probable first."""
        model, codes = self.identifier
        if not codes:  # it knows none of them
            return [(one, 0.0) for one in self.languages]
        return [(codes[code], round(100 * float(share), 1)) for code, share in model.rank(text)]
