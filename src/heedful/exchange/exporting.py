"""Export a run to a folder for other runtimes.

    exported = export("runs/small", "small-onnx")

    start.onnx  step.onnx     the model (flat.py)
    tokenizer.json            the tokenizer, for the library `tokenizers`
    export.json               tensor names, special tokens, search options, and the comparison with the run
    translate.py              a translator that needs only these files
    README.md                 a description

The exported model is compared with the run first: the folder is created only if both agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.config.base import plain
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.exchange.onnx_graphs import write_graphs
from heedful.exchange.onnx_model import OnnxModel
from heedful.exchange.parity import Parity, compare
from heedful.search import SearchConfig
from heedful.storage.folders import new_folder
from heedful.storage.reading import read_package_text
from heedful.storage.writing import write_text
from heedful.tasks.translation.data import examples_of
from heedful.tasks.translation.predictor import Translator
from heedful.text.tokenizer import Tokenizer
from heedful.training.run_folder import refuse_name

SEARCH_OPTIONS = ("penalty", "length_penalty", "min_length", "max_length", "max_extra")
SENTENCEPIECE = "sentencepiece"  # the kind of tokenizer that the library `tokenizers` cannot load


class Form(NamedTuple):
    write: Callable[[nn.Module, Path], Any]
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
    translator = Translator.load(Path(run), checkpoint, "cpu")
    model: Any = translator.model
    data, search, threads = translator.run.data, translator.run.search, torch.get_num_threads()
    examples = examples_of(splits_of(data).valid, data.max_ratio)
    sources, targets = list(examples.sources[:sentences]), list(examples.references[:sentences])
    with new_folder(folder) as unfinished:
        report(f"writing {translator.run.model.family} {translator.checkpoint} as {form}")
        kind.write(model, unfinished)
        report(f"comparing both on {len(sources)} validation sentences")
        exported = kind.run(unfinished, threads=threads, max_length=model.max_length)
        parity = compare(translator.system, exported, sources, targets, search, threads)
        write_metadata(unfinished, translator, form, parity)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return Exported(folder, form, files, (translator.checkpoint / "model.safetensors").stat().st_size, parity)


def write_metadata(folder: Path, translator: Translator, form: str, parity: Parity) -> None:
    """Write all files except the model."""
    system = translator.system
    sides = {"source": system.source_tokenizer, "target": system.target_tokenizer}
    shared = sides["source"] is sides["target"]
    names = {side: "tokenizer.json" if shared else f"{side}.tokenizer.json" for side in sides}
    for side, tokenizer in sides.items():
        tokenizer.save(folder / names[side])
    model: Any = translator.model
    facts = {
        "format": 1,
        "form": form,
        "heedful": version("heedful"),
        "run": translator.checkpoint.parent.parent.name,
        "checkpoint": translator.checkpoint.name,
        "tokenizers": names,
        **{side: specials_of(tokenizer) for side, tokenizer in sides.items()},
        "max_length": model.max_length,
        "search": search_settings(translator.run.search),
        "parity": parity._asdict(),
    }
    write_text(folder / "export.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    readable = all(tokenizer.kind != SENTENCEPIECE for tokenizer in sides.values())
    if readable:
        write_text(folder / "translate.py", read_package_text("heedful.exchange", "standalone.py"))
    write_text(folder / "README.md", format_readme(facts, translator.run.model.family, parity, readable))


def specials_of(tokenizer: Tokenizer) -> dict[str, int]:
    return {name: getattr(tokenizer.specials, name) for name in ("pad", "start", "end", "unk")}


def search_settings(config: SearchConfig) -> dict[str, Any]:
    """Return the options of a plain beam search; other methods become a beam of 1."""
    given = plain(config)
    options = {name: given.get(name, SearchConfig.model_fields[name].default) for name in SEARCH_OPTIONS}
    if config.method != "beam":
        options["length_penalty"] = 0.0
    return {"beam": config.beam if config.method == "beam" else 1, **options}


def format_readme(facts: dict[str, Any], family: str, parity: Parity, readable: bool) -> str:
    use = "python translate.py < lines.txt        # requires onnxruntime, tokenizers and numpy"
    if not readable:
        use = "# the tokenizer is a SentencePiece model, in a tokenizer.json that only heedful can load"
    return f"""# {facts["run"]}, as {facts["form"].upper()}

A {family} translation model: `start.onnx` encodes the source, `step.onnx` predicts the next token. Both accept any number of
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
| identical translations | {parity.same} of {parity.sentences} sentences |
| seconds | {parity.seconds:.2f}; in torch {parity.seconds_before:.2f} |

Exported by heedful {facts["heedful"]} from `{facts["checkpoint"]}`.
"""
