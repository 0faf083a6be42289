"""`heed translate`, and the options of `heed predict` and `heed evaluate` for translation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_RESAMPLES
from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    prefixes: Annotated[Path | None, Option("File of forced target prefixes, one per line.")] = None


@dataclass(frozen=True)
class EvaluateOptions:
    source: Annotated[Path | None, Option("File to translate. Default: the run's data, see --split.")] = None
    reference: Annotated[Path | None, Option("Reference translations of --source.")] = None
    metrics: Annotated[str, Option("Metrics: any of bleu, chrf, ter, gleu, exact_match.")] = "bleu,chrf,ter,exact_match"
    lowercase: Annotated[bool, Option("Ignore case.")] = False
    tokenize: Annotated[str | None, Option("sacreBLEU tokenizer: 13a, intl, char or none.")] = None
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    against: Annotated[Path | None, Option("Baseline run: test whether the difference is significant.")] = None
    output: Annotated[Path | None, Option("Write translations to this file.")] = None


COMMAND = Command(
    "translate",
    "Translate lines of text.\n\nWith -s n_best=N each line yields N rows: score TAB text.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    ensembles=True,
)
