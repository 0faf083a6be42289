"""Formulas in a small notation, rendered as text or as MathML:

    A = softmax(frac(Q K^T, sqrt(d_k)))        A = softmax((Q Kᵀ) / √d_k)

A script (_ or ^) and the argument of `sqrt` are one symbol or a group in parentheses; `frac(a, b)` has two parts. Names
longer than one letter are functions or words; Greek letters, `sum`, `inf`, `->` and `<=` are written by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from heedful.inspection.drawing.markup import escape

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
TOKEN = re.compile(r"\s+(?!\()|(->|<=|>=|[A-Za-zα-ω]+'?|\d+(?:\.\d+)?(?:e-?\d+)?|\s*\(|.)")  # distinguishes f(x) from f (x)


class Part(NamedTuple):
    """A node of the syntax tree."""

    kind: str  # name, number, operator, row, group, sqrt, frac, script
    text: str
    parts: tuple[Part, ...] = ()


def parse(formula: str) -> Part:
    tokens = [token for token in TOKEN.findall(formula.strip()) if token]
    tokens.append("")
    tree, at = parse_row(tokens, 0, "")
    assert at == len(tokens) - 1, f"cannot parse the formula {formula!r} beyond {tokens[at]!r}"
    return tree


def parse_row(tokens: list[str], at: int, *ends: str) -> tuple[Part, int]:
    """Parse up to one of the ends, which is not consumed."""
    parts: list[Part] = []
    while tokens[at] not in ends:
        assert tokens[at], "a group of the formula is not closed"
        part, at = parse_scripted(tokens, at)
        parts.append(part)
    return Part("row", "", tuple(parts)), at


def parse_scripted(tokens: list[str], at: int) -> tuple[Part, int]:
    """Parse a symbol or a group with its scripts."""
    part, at = parse_atom(tokens, at)
    while tokens[at] in ("_", "^"):
        mark = tokens[at]
        negative = tokens[at + 1] == "-"
        script, at = parse_atom(tokens, at + 1 + negative)
        script = strip_group(script)
        if negative:
            script = Part("row", "", (Part("operator", "-"), script))
        part = Part("script", mark, (part, script))
    return part, at


def parse_atom(tokens: list[str], at: int) -> tuple[Part, int]:
    token = tokens[at]
    if token.endswith("("):
        inside, at = parse_row(tokens, at + 1, ")")
        return Part("group", token, (inside,)), at + 1
    if token == "sqrt":
        under, at = parse_scripted(tokens, at + 1)
        return Part("sqrt", "", (strip_group(under),)), at
    if token == "frac":
        above, at = parse_row(tokens, at + 2, ",")
        below, at = parse_row(tokens, at + 1, ")")
        return Part("frac", "", (above, below)), at + 1
    if token[0].isalpha():
        return Part("name", token), at + 1
    return Part("number" if token[0].isdigit() else "operator", token), at + 1


def strip_group(part: Part) -> Part:
    """Remove the parentheses that only group the argument of a root or a script."""
    return part.parts[0] if part.kind == "group" else part


# As text


def as_text(formula: str) -> str:
    return WRITE["row"](parse(formula))


def write(part: Part) -> str:
    return WRITE[part.kind](part)


def write_row(part: Part) -> str:
    """Put spaces around operators and between factors, but none inside f(x) or after a sign."""
    out = ""
    for i, item in enumerate(part.parts):
        before = part.parts[i - 1] if i else None
        if before is not None and needs_space(before, item, part.parts[i - 2] if i > 1 else None):
            out += " "
        out += write(item)
    return out


def needs_space(before: Part, item: Part, earlier: Part | None) -> bool:
    if item.text in (",", ";", ":", ".", "'") or before.text in ("[", "|") or item.text in ("]", "|"):
        return False
    if before.kind == "operator" and before.text == "-":
        return earlier is not None and earlier.kind != "operator"  # not after a sign
    return item.text != "(" or before.kind == "operator"  # no space inside f(x)


def write_script(part: Part) -> str:
    base, script = write(part.parts[0]), write(part.parts[1]).replace("−", "-")
    if part.text == "^" and script in SUPERSCRIPTS:
        return base + SUPERSCRIPTS[script]
    return f"{base}{part.text}{script if len(script) == 1 or script.isalnum() else f'({script})'}"


def write_frac(part: Part) -> str:
    above, below = (write(item) if len(item.parts) == 1 else f"({write(item)})" for item in part.parts)
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
    """Formulas separated by " , " become separate elements, so that a narrow page can break between them."""
    return "".join(f'<math display="block">{to_mathml(parse(item))}</math>' for item in formula.split(" , "))


def to_mathml(part: Part) -> str:
    return MARK[part.kind](part)


def mark_row(part: Part) -> str:
    """Add a small space between factors; browsers add the space around operators."""
    out = ""
    for i, item in enumerate(part.parts):
        before = part.parts[i - 1] if i else None
        if before is not None and "operator" not in (before.kind, item.kind) and needs_space(before, item, None):
            out += '<mspace width="0.2em"></mspace>'
        out += to_mathml(item)
    return f"<mrow>{out}</mrow>"


def mark_name(part: Part) -> str:
    name = part.text.removesuffix("'")
    prime = "" if name == part.text else "<mo>′</mo>"  # is already raised: in a superscript it would be too high
    marked = f"<mi>{escape(SYMBOLS.get(name, name))}</mi>"
    return f"<mrow>{marked}{prime}</mrow>" if prime else marked


def mark_group(part: Part) -> str:
    """Stretch parentheses only around fractions."""
    tall = "" if contains_fraction(part) else ' stretchy="false"'
    return f"<mrow><mo{tall}>(</mo>{to_mathml(part.parts[0])}<mo{tall}>)</mo></mrow>"


def contains_fraction(part: Part) -> bool:
    return part.kind == "frac" or any(contains_fraction(item) for item in part.parts)


def mark_script(part: Part) -> str:
    tag = "msub" if part.text == "_" else "msup"
    return f"<{tag}>{to_mathml(part.parts[0])}{to_mathml(part.parts[1])}</{tag}>"


MARK: dict[str, Callable[[Part], str]] = {
    "name": mark_name,
    "number": lambda part: f"<mn>{escape(part.text)}</mn>",
    "operator": lambda part: f"<mo>{escape(SYMBOLS.get(part.text, part.text))}</mo>",
    "row": mark_row,
    "group": mark_group,
    "sqrt": lambda part: f"<msqrt>{to_mathml(part.parts[0])}</msqrt>",
    "frac": lambda part: f"<mfrac>{to_mathml(part.parts[0])}{to_mathml(part.parts[1])}</mfrac>",
    "script": mark_script,
}
