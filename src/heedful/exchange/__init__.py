"""Export of models to other runtimes. A form is one function that writes a model's files, and one that runs them here."""

from __future__ import annotations

from heedful.exchange.exporting import FORMS, Exported, export

__all__ = ["FORMS", "Exported", "export"]
