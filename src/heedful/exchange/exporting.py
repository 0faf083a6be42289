"""Export a run to a folder for other runtimes.

    exported = export("runs/small", "small-onnx")

    start.onnx  step.onnx     the model (flat.py): a translator, or a captioner, whose source is pixels
    tokenizer.json            the tokenizer, for the library `tokenizers`
    export.json               tensor names, special tokens, search options, and the comparison with the run
    translate.py              a translator that needs only these files; of a translator
    README.md                 a description

The exported model is compared with the run first: the folder is created only if both agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from heedful.config.base import plain
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.exchange.onnx_graphs import write_graphs
from heedful.exchange.onnx_model import OnnxModel
from heedful.exchange.parity import Parity, compare
from heedful.models.family import ImageShape
from heedful.runs.load import load
from heedful.search import SearchConfig
from heedful.storage.folders import new_folder
from heedful.storage.reading import read_package_text
from heedful.storage.writing import write_text
from heedful.tasks.batches import Batch, collate
from heedful.tasks.captioning.caption import caption_images
from heedful.tasks.captioning.data import make_batch
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.predictor import Predictor
from heedful.tasks.system import System
from heedful.tasks.translation.data import examples_of
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import Tokenizer
from heedful.training.manifest import read_manifest
from heedful.training.run_folder import refuse_name

SEARCH_OPTIONS = ("penalty", "length_penalty", "min_length", "max_length", "max_extra")
BATCH = 8  # sources at a time
SENTENCEPIECE = "sentencepiece"  # the kind of tokenizer that the library `tokenizers` cannot load


class Form(NamedTuple):
    write: Callable[[nn.Module, Path, ImageShape | None], Any]  # of a model whose source is pixels, their shape
    run: Callable[..., Any]


FORMS: dict[str, Form] = {"onnx": Form(write_graphs, OnnxModel)}


class Exported(NamedTuple):
    folder: Path
    form: str
    files: dict[str, int]  # bytes
    run_bytes: int  # size of the run's weights
    parity: Parity


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    form: str = "onnx",
    *,
    checkpoint: str | None = None,
    sentences: int = 100,
    report: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Write the folder `out` after comparing the export with the run on `sentences` validation sentences.
    report: called with progress messages."""
    kind, folder = lookup(form, FORMS, "form"), Path(out)
    refuse_name(folder)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; expected a new folder", hint="choose another folder with --out")
    predictor = load(Path(run), checkpoint, "cpu")
    task = predictor.run.task.name
    if task not in EXAMPLES:
        raise ConfigError(f"{run} is a run of task {task!r}, which cannot be exported; expected one of: {', '.join(EXAMPLES)}")
    weights = read_manifest(predictor.checkpoint).files_of("model")
    model: Any = predictor.model
    threads = torch.get_num_threads()
    batches, generate = EXAMPLES[task](predictor, sentences)
    with new_folder(folder) as unfinished:
        report(f"writing {predictor.run.model.family} {predictor.checkpoint} as {form}")
        kind.write(model, unfinished, predictor.run.model.image_shape)
        report("comparing both on validation data")
        exported = kind.run(unfinished, threads=threads, max_length=model.max_length, config=model.config)
        parity = compare(predictor.system, exported, batches, generate, threads)
        write_metadata(unfinished, predictor, form, parity)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return Exported(folder, form, files, sum(file.size for file in weights.values()), parity)


Generate = Callable[[System], list[str]]  # the outputs of a system for the sources of an export's comparison


def sentence_pairs(predictor: Predictor, count: int) -> tuple[Iterator[Batch], Generate]:
    """The first validation pairs, and their translations."""
    data, system, search = predictor.run.data, predictor.system, predictor.run.search
    examples = examples_of(splits_of(data).valid, data.max_ratio)
    sources, targets = list(examples.sources[:count]), list(examples.references[:count])
    source_ids = [system.source_tokenizer.encode(text)[: system.max_length] for text in sources]
    target_ids = [system.target_tokenizer.encode(text)[: system.max_length] for text in targets]
    specials = system.source_tokenizer.specials, system.target_tokenizer.specials
    parts = [slice(at, at + BATCH) for at in range(0, len(sources), BATCH)]
    batches = (collate(source_ids[part], target_ids[part], *specials) for part in parts)
    return batches, lambda system: [translation.text for translation in translate(system, sources, search)]


def captioned_images(predictor: Predictor, count: int) -> tuple[Iterator[Batch], Generate]:
    """The first validation images with their captions, and the captions that are generated for them."""
    system, search, captioner = predictor.system, predictor.run.search, Captioner.of(predictor)
    images, tokenizer = captioner.split_images("valid"), system.target_tokenizer
    pixels = [images.pixels[row] for row in images.rows[:count]]
    tokens = [tokenizer.encode(text)[: system.max_length] for text in images.captions[:count]]
    parts = [slice(at, at + BATCH) for at in range(0, len(pixels), BATCH)]
    batches = (make_batch(np.stack(pixels[part]), tokens[part], tokenizer.specials) for part in parts)
    return batches, lambda system: [candidates[0].text for candidates in caption_images(system, pixels, search)]


EXAMPLES: dict[str, Callable[[Predictor, int], tuple[Iterator[Batch], Generate]]] = {  # by task
    "translation": sentence_pairs,
    "captioning": captioned_images,
}


def write_metadata(folder: Path, predictor: Predictor, form: str, parity: Parity) -> None:
    """Write all files except the model."""
    system, image = predictor.system, predictor.run.model.image_shape
    sides = {"source": system.source_tokenizer, "target": system.target_tokenizer}
    if image is not None:
        del sides["source"]
    shared = len(set(sides.values())) == 1
    names = {side: "tokenizer.json" if shared else f"{side}.tokenizer.json" for side in sides}
    for side, tokenizer in sides.items():
        tokenizer.save(folder / names[side])
    model: Any = predictor.model
    facts = {
        "format": 1,
        "form": form,
        "heedful": version("heedful"),
        "task": predictor.run.task.name,
        "run": predictor.checkpoint.parent.parent.name,
        "checkpoint": predictor.checkpoint.name,
        "tokenizers": names,
        **{side: specials_of(tokenizer) for side, tokenizer in sides.items()},
        "max_length": model.max_length,
        **({} if image is None else {"image": image._asdict()}),
        "search": search_settings(predictor.run.search),
        "parity": parity._asdict(),
    }
    write_text(folder / "export.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    has_script = image is None and all(tokenizer.kind != SENTENCEPIECE for tokenizer in sides.values())
    if has_script:
        write_text(folder / "translate.py", read_package_text("heedful.exchange", "standalone.py"))
    write_text(folder / "README.md", format_readme(facts, predictor.run.model.family, parity, has_script))


def specials_of(tokenizer: Tokenizer) -> dict[str, int]:
    return {name: getattr(tokenizer.specials, name) for name in ("pad", "start", "end", "unk")}


def search_settings(config: SearchConfig) -> dict[str, Any]:
    """Return the options of a plain beam search; other methods become a beam of 1."""
    given = plain(config)
    options = {name: given.get(name, SearchConfig.model_fields[name].default) for name in SEARCH_OPTIONS}
    if config.method != "beam":
        options["length_penalty"] = 0.0
    return {"beam": config.beam if config.method == "beam" else 1, **options}


def format_readme(facts: dict[str, Any], family: str, parity: Parity, has_script: bool) -> str:
    source = "the source" if "image" not in facts else "an image, `source` (rows, {height}, {width}, {channels}), bytes"
    source = source.format(**facts.get("image", {}))
    use = "python translate.py < lines.txt        # requires onnxruntime, tokenizers and numpy"
    if "image" in facts:
        use = "# start.onnx once for each image, then step.onnx for each token, from the start token on"
    elif not has_script:
        use = "# the tokenizer is a SentencePiece model, in a tokenizer.json that only heedful can load"
    return f"""# {facts["run"]}, as {facts["form"].upper()}

A {family} {facts["task"]} model: `start.onnx` encodes {source}, `step.onnx` predicts the next token. Both accept any number of
rows. The outputs of `start.onnx` are inputs of `step.onnx` with the same names; the output `next.NAME` of a step is the
input `NAME` of the next step, and `memory.…` does not change. To reorder hypotheses, index the rows of all state tensors.
Special token ids and search options are in `export.json`.

```
{use}
```

## Comparison with the run

| | |
|---|---|
| largest difference of a logit | {parity.logits:.1e}, over {parity.tokens:,} tokens |
| identical outputs | {parity.same} of {parity.sentences} |
| seconds | {parity.seconds:.2f}; in torch {parity.seconds_before:.2f} |

Exported by heedful {facts["heedful"]} from `{facts["checkpoint"]}`.
"""
