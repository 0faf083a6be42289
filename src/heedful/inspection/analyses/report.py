"""A report: several results in one page, for a text, for the model, or for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heedful import inspection
from heedful.errors import ConfigError, lookup
from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.report_replies import describe_model, replies_of
from heedful.inspection.analyses.summary import conditions
from heedful.inspection.page import Content, write_page
from heedful.inspection.page.blocks import Block, Heading
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

OF_TEXT = {"attention": "attention", "lens": "layers, and probabilities", "saliency": "any"}  # name: what the run must have
OF_TEXT |= {"alternatives": "probabilities", "document": "attention pooling", "image": "attention to an image"}
OF_MODEL = {"summary": "any", "heads": "attention", "positions": "positions", "experts": "experts", "cost": "any"}
DEFAULT = (  # with a text, without one
    ("document", "image", "attention", "lens", "saliency"),
    ("summary", "heads", "positions", "experts", "cost"),
)


@dataclass(frozen=True)
class ReportResult(Result):
    """Several results, by the names of their analyses.

    >>> result = heedful.inspection.report(translator, "w1 w2", ["lens"])
    >>> result.results["lens"].title
    'Logit lens'
    """

    results: Mapping[str, Result]
    run: str  # name of the run folder
    family: str
    replies: Mapping[str, Any] = field(default_factory=dict)  # to further requests of the studio's views
    model: Mapping[str, Any] = field(default_factory=dict)  # what these views have to know of it

    @property
    def title(self) -> str:
        return f"Report of {self.run}"

    @property
    def subject(self) -> Sequence[str]:
        """The text of the results; the run, where all are of the model."""
        of_text = [result.subject for name, result in self.results.items() if name not in OF_MODEL]
        return of_text[0] if of_text else [self.run]

    def to_dict(self) -> dict[str, Any]:
        return {name: result.to_dict() for name, result in self.results.items()}

    def text(self) -> str:
        return "\n\n".join(f"{result.title}\n{'=' * len(result.title)}\n{result.text()}" for result in self.results.values())

    def blocks(self) -> list[Block]:
        return [block for result in self.results.values() for block in (Heading(result.title), *result.blocks())]

    def html(self) -> str:
        trace = next((one for one in self.results.values() if isinstance(one, AttentionResult)), None)
        others = [one.section()._replace(analysis=name) for name, one in self.results.items() if one is not trace]
        content = Content(self.subject, others, [self.family, self.run], self.subject[0])
        if trace is not None:
            content = trace.content(others)
        return write_page(
            f"Model inspection: {' → '.join(self.subject)}", replace(content, replies=self.replies, model=self.model)
        )


def report(
    predictor: Predictor,
    text: str | None = None,
    include: Sequence[str] = (),
    *,
    target: str | None = None,
    config: SearchConfig | None = None,
) -> ReportResult:
    """Several analyses in one page. include: names of analyses; default: those that apply to the run and, if a text is
    given, describe it: attention, logit lens and saliency; otherwise those of the model.

    >>> list(heedful.inspection.report(translator, "w1 w2", ["attention", "lens"]).results)
    ['attention', 'lens']
    """
    has, known = conditions(predictor), OF_TEXT | OF_MODEL
    names = include or [name for name in DEFAULT[0 if text is not None else 1] if has[known[name]]]
    for name in names:
        lookup(name, known, "analysis in a report")
    of_text = [name for name in names if name in OF_TEXT]
    if of_text and text is None:
        raise ConfigError(f"a text is missing; expected one for: {', '.join(of_text)}")
    if text is not None and not of_text:
        raise ConfigError(f"a text has no effect on: {', '.join(names)}", hint=f"include one of: {', '.join(OF_TEXT)}")
    if text is None and (target is not None or config is not None):
        raise ConfigError("a target and search options have no effect without a text", hint="add a text")
    results: dict[str, Result] = {}
    for name in dict.fromkeys(names):
        analyze = getattr(inspection, name)
        results[name] = analyze(predictor, text, target=target, config=config) if name in OF_TEXT else analyze(predictor)
    whole = text is not None and not include and target is None and config is None  # else the views would show another output
    replies = replies_of(predictor, text) if whole and text is not None else {}
    run = predictor.checkpoint.parent.parent.name
    return ReportResult(results, run, predictor.run.model.family, replies, describe_model(predictor))
