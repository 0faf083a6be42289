"""Every claim by its name. A new one is a function in a file of its own kind and a line here."""

from __future__ import annotations

from claims import Claim

CLAIMS: dict[str, Claim] = {}
