"""A parser of the pages of results: tables, pictures and texts of each section."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Sections by their title: the rows of each table, the tips and labels of each picture, and the texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, dict[str, list[Any]]] = {}
        self.open: list[str] = []
        self.here: dict[str, list[Any]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        given = dict(attrs)
        if tag == "section":
            self.here = {"title": [""], "tables": [], "svg": [], "tips": [], "labels": [], "words": [], "bars": [], "cells": []}
        if tag == "table":
            self.here["tables"].append([])
        elif tag == "tr":
            self.here["tables"][-1].append([])
        elif tag in ("th", "td"):
            self.here["tables"][-1][-1].append("")
        elif tag == "svg":
            self.here["svg"].append(given["aria-label"])
        elif tag == "i":
            self.here["bars"].append(float((given["style"] or "").removeprefix("width:").removesuffix("%")) / 100)
        elif tag == "rect" and self.here:
            self.here["cells"].append(given.get("fill"))
        elif tag == "p":
            self.here.setdefault("words", []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass
        if tag == "section" and self.here:
            self.sections[self.here["title"][0]] = self.here
            self.here = {}

    def handle_data(self, text: str) -> None:
        inside = self.open[-1] if self.open else ""
        if not self.here or inside in ("script", "style"):
            return
        if inside == "h2":
            self.here["title"] = [text]
        elif "td" in self.open or "th" in self.open:
            self.here["tables"][-1][-1][-1] += text
        elif inside == "title":
            self.here["tips"].append(text)
        elif inside == "text":
            self.here["labels"].append(text)
        elif inside == "p":
            self.here["words"][-1] += text
