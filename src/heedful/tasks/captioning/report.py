"""`heed evaluate` for captioning: loss, perplexity and metrics of generated captions with confidence intervals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import lookup
from heedful.evaluation.metrics import METRICS
from heedful.search import SearchConfig
from heedful.storage.writing import output_file
from heedful.tasks.captioning.command import EvaluateOptions
from heedful.tasks.captioning.evaluate import evaluate
from heedful.tasks.translation.report import FEW_RESAMPLES, TranslationReport

if TYPE_CHECKING:
    from heedful.tasks.captioning.predictor import Captioner


def report(captioner: Captioner, split: str, options: EvaluateOptions, search: SearchConfig) -> TranslationReport:
    names = list(dict.fromkeys(name.strip() for name in options.metrics.split(",")))
    for name in names:  # each is computed once on a short example, so that invalid options fail before any work
        lookup(name, METRICS, "metric")(["a"], ["a"], bootstrap=min(options.bootstrap, FEW_RESAMPLES))
    images = captioner.split_images(split)
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        evaluation = evaluate(captioner.system, images, search, names, bootstrap=options.bootstrap)
        file.writelines(f"{line}\n" for line in evaluation.translations)
    tokenizer = captioner.system.target_tokenizer.description
    return TranslationReport(evaluation, len(images.captions), split, tokenizer, captioner.checkpoint, None, {}, [])
