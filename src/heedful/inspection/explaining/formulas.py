"""Formulas are written once, in the notation of this line, and shown as text or as MathML:

    A = softmax(frac(Q K^T, sqrt(d_k)))        A = softmax((Q Kᵀ) / √d_k)

A script (_ or ^) and what follows `sqrt` is one symbol or a group in parentheses; `frac(a, b)` has two parts. Names longer
than one letter are functions or words; Greek letters and `sum`, `inf`, `->` and `<=` go by their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from heedful.inspection.markup import escape

SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "epsilon": "ε",
    "omega": "ω",
    "theta": "θ",
    "sum": "∑",
    "prod": "∏",
    "inf": "∞",
    "in": "∈",
    "->": "→",
    "<=": "≤",
    ">=": "≥",
    "*": "·",
    "-": "−",
}
SUPERSCRIPTS = {"T": "ᵀ", "2": "²", "-1": "⁻¹"}
TOKEN = re.compile(r"\s+(?!\()|(->|<=|>=|[A-Za-zα-ω]+'?|\d+(?:\.\d+)?(?:e-?\d+)?|\s*\(|.)")  # f(x) is told from f (x)


class Part(NamedTuple):
    """A formula as a tree: kind, what it says, and its parts."""

    kind: str  # name, number, operator, row, group, sqrt, frac, script
    text: str
    parts: tuple[Part, ...] = ()


def parse(formula: str) -> Part:
    tokens = [token for token in TOKEN.findall(formula.strip()) if token]
    tokens.append("")
    found, at = row(tokens, 0, "")
    assert at == len(tokens) - 1, f"cannot read the formula {formula!r} beyond {tokens[at]!r}"
    return found


def row(tokens: list[str], at: int, *ends: str) -> tuple[Part, int]:
    """Parts up to one of the ends, which is not taken."""
    parts: list[Part] = []
    while tokens[at] not in ends:
        assert tokens[at], "a formula ends before a group of it does"
        part, at = scripted(tokens, at)
        parts.append(part)
    return Part("row", "", tuple(parts)), at


def scripted(tokens: list[str], at: int) -> tuple[Part, int]:
    """A symbol or a group with its scripts."""
    part, at = atom(tokens, at)
    while tokens[at] in ("_", "^"):
        mark = tokens[at]
        negative = tokens[at + 1] == "-"
        script, at = atom(tokens, at + 1 + negative)
        script = bare(script)
        if negative:
            script = Part("row", "", (Part("operator", "-"), script))
        part = Part("script", mark, (part, script))
    return part, at


def atom(tokens: list[str], at: int) -> tuple[Part, int]:
    token = tokens[at]
    if token.endswith("("):
        inside, at = row(tokens, at + 1, ")")
        return Part("group", token, (inside,)), at + 1
    if token == "sqrt":
        under, at = scripted(tokens, at + 1)
        return Part("sqrt", "", (bare(under),)), at
    if token == "frac":
        above, at = row(tokens, at + 2, ",")
        below, at = row(tokens, at + 1, ")")
        return Part("frac", "", (above, below)), at + 1
    if token[0].isalpha():
        return Part("name", token), at + 1
    return Part("number" if token[0].isdigit() else "operator", token), at + 1


def bare(part: Part) -> Part:
    """Parentheses that only hold together what stands under a root or in a script are not shown."""
    return part.parts[0] if part.kind == "group" else part


# As text


def as_text(formula: str) -> str:
    return WRITE["row"](parse(formula))


def write(part: Part) -> str:
    return WRITE[part.kind](part)


def write_row(part: Part) -> str:
    """Spaces around operators, between factors, none inside f(x) and after a sign."""
    out = ""
    for i, one in enumerate(part.parts):
        before = part.parts[i - 1] if i else None
        if before is not None and spaced(before, one, part.parts[i - 2] if i > 1 else None):
            out += " "
        out += write(one)
    return out


def spaced(before: Part, one: Part, earlier: Part | None) -> bool:
    if one.text in (",", ";", ":", ".", "'") or before.text in ("[", "|") or one.text in ("]", "|"):
        return False
    if before.kind == "operator" and before.text == "-":
        return earlier is not None and earlier.kind != "operator"  # not after a sign
    return one.text != "(" or before.kind == "operator"  # f(x) stands together


def write_script(part: Part) -> str:
    base, script = write(part.parts[0]), write(part.parts[1]).replace("−", "-")
    if part.text == "^" and script in SUPERSCRIPTS:
        return base + SUPERSCRIPTS[script]
    return f"{base}{part.text}{script if len(script) == 1 or script.isalnum() else f'({script})'}"


def write_frac(part: Part) -> str:
    above, below = (write(one) if len(one.parts) == 1 else f"({write(one)})" for one in part.parts)
    return f"{above} / {below}"


def write_sqrt(part: Part) -> str:
    under = part.parts[0]
    return f"√{write(under)}" if under.kind != "row" or len(under.parts) == 1 else f"√({write(under)})"


WRITE: dict[str, Callable[[Part], str]] = {
    "name": lambda part: SYMBOLS.get(part.text, part.text),
    "number": lambda part: part.text,
    "operator": lambda part: SYMBOLS.get(part.text, part.text),
    "row": write_row,
    "group": lambda part: f"({write(part.parts[0])})",
    "sqrt": write_sqrt,
    "frac": write_frac,
    "script": write_script,
}


# As MathML


def as_mathml(formula: str) -> str:
    """Formulas that stand apart by a comma between spaces are one each, so that a narrow page can break between them."""
    return "".join(f'<math display="block">{mark(parse(one))}</math>' for one in formula.split(" , "))


def mark(part: Part) -> str:
    return MARK[part.kind](part)


def mark_all(part: Part) -> str:
    """Factors stand a little apart; around operators a browser sees to it."""
    out = ""
    for i, one in enumerate(part.parts):
        before = part.parts[i - 1] if i else None
        if before is not None and "operator" not in (before.kind, one.kind) and spaced(before, one, None):
            out += '<mspace width="0.2em"></mspace>'
        out += mark(one)
    return f"<mrow>{out}</mrow>"


def mark_name(part: Part) -> str:
    name = part.text.removesuffix("'")
    prime = "" if name == part.text else "<mo>′</mo>"  # high by itself: in a superscript it would float
    marked = f"<mi>{escape(SYMBOLS.get(name, name))}</mi>"
    return f"<mrow>{marked}{prime}</mrow>" if prime else marked


def mark_group(part: Part) -> str:
    """Parentheses grow only around fractions."""
    tall = "" if holds_fraction(part) else ' stretchy="false"'
    return f"<mrow><mo{tall}>(</mo>{mark(part.parts[0])}<mo{tall}>)</mo></mrow>"


def holds_fraction(part: Part) -> bool:
    return part.kind == "frac" or any(holds_fraction(one) for one in part.parts)


def mark_script(part: Part) -> str:
    tag = "msub" if part.text == "_" else "msup"
    return f"<{tag}>{mark(part.parts[0])}{mark(part.parts[1])}</{tag}>"


MARK: dict[str, Callable[[Part], str]] = {
    "name": mark_name,
    "number": lambda part: f"<mn>{escape(part.text)}</mn>",
    "operator": lambda part: f"<mo>{escape(SYMBOLS.get(part.text, part.text))}</mo>",
    "row": mark_all,
    "group": mark_group,
    "sqrt": lambda part: f"<msqrt>{mark(part.parts[0])}</msqrt>",
    "frac": lambda part: f"<mfrac>{mark(part.parts[0])}{mark(part.parts[1])}</mfrac>",
    "script": mark_script,
}
