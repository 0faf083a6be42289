"""From a run folder to a folder that other runtimes read.

    made = export("runs/small", "small-onnx")

    start.onnx  step.onnx     the model (flat.py)
    tokenizer.json            its vocabulary, read by the library `tokenizers`
    export.json               names, special tokens, how to search, and how it compares with the run
    translate.py              translates with these files alone
    README.md                 what this is

What was written is compared with the run before anybody sees it: the folder appears when that is done, or not at all.
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

from heedful import build
from heedful.data.splits import splits_of
from heedful.errors import ConfigError, lookup
from heedful.exchange.onnx_graphs import write_graphs
from heedful.exchange.onnx_model import OnnxModel
from heedful.exchange.parity import Parity, compare
from heedful.schema import plain
from heedful.search import SearchConfig
from heedful.storage.folders import new_folder
from heedful.storage.reading import read_package_text
from heedful.storage.writing import write_text
from heedful.text.tokenizer import Tokenizer
from heedful.training.run_folder import refuse_name

SEARCHED_BY = ("penalty", "length_penalty", "min_length", "max_length", "max_extra")
ELSEWHERE = "sentencepiece"  # the kind of vocabulary that the library does not read


class Form(NamedTuple):
    write: Callable[[nn.Module, Path], Any]
    run: Callable[..., Any]


FORMS: dict[str, Form] = {"onnx": Form(write_graphs, OnnxModel)}


class Exported(NamedTuple):
    folder: Path
    form: str
    files: dict[str, int]  # bytes
    run_bytes: int  # of the run's weights
    parity: Parity


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    form: str = "onnx",
    *,
    which: str | None = None,
    sentences: int = 100,
    say: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Write a folder `out`; compared on so many validation sentences. say: what to do with a word on how far it is."""
    kind, folder = lookup(form, FORMS, "form"), Path(out)
    refuse_name(folder)
    if folder.exists():
        raise ConfigError(f"{folder} exists already", hint="give the export a folder of its own with --out")
    translator = build.load_translator(Path(run), which, "cpu")
    model: Any = translator.model
    data, search, threads = translator.run.data, translator.run.search, torch.get_num_threads()
    examples = build.examples_of(splits_of(data).valid, data.max_ratio)
    sources, targets = list(examples.sources[:sentences]), list(examples.references[:sentences])
    with new_folder(folder) as unfinished:
        say(f"writing {translator.run.model.family} {translator.checkpoint} as {form}")
        kind.write(model, unfinished)
        say(f"comparing both on {len(sources)} validation sentences")
        exported = kind.run(unfinished, threads=threads, max_length=model.max_length)
        found = compare(translator.system, exported, sources, targets, search, threads)
        tell(unfinished, translator, form, found)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return Exported(folder, form, files, (translator.checkpoint / "model.safetensors").stat().st_size, found)


def tell(folder: Path, translator: build.Translator, form: str, found: Parity) -> None:
    """All files but the model's own."""
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
        "longest": model.max_length,
        "search": searched(translator.run.search),
        "parity": found._asdict(),
    }
    write_text(folder / "export.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    readable = all(tokenizer.kind != ELSEWHERE for tokenizer in sides.values())
    if readable:
        write_text(folder / "translate.py", read_package_text("heedful.exchange", "standalone.py"))
    write_text(folder / "README.md", card(facts, translator.run.model.family, found, readable))


def specials_of(tokenizer: Tokenizer) -> dict[str, int]:
    return {name: getattr(tokenizer.specials, name) for name in ("pad", "start", "end", "unk")}


def searched(config: SearchConfig) -> dict[str, Any]:
    """What a plain beam search must know; who does not search by a beam has one of 1."""
    told = plain(config)
    known = {name: told.get(name, SearchConfig.model_fields[name].default) for name in SEARCHED_BY}
    if config.method != "beam":
        known["length_penalty"] = 0.0
    return {"beam": config.beam if config.method == "beam" else 1, **known}


def card(facts: dict[str, Any], family: str, found: Parity, readable: bool) -> str:
    use = "python translate.py < lines.txt        # needs onnxruntime, tokenizers and numpy"
    if not readable:
        use = "# its vocabulary is a SentencePiece model, which tokenizer.json holds for heedful alone"
    return f"""# {facts["run"]}, as {facts["form"].upper()}

A {family} that translates: `start.onnx` reads a source, `step.onnx` says what may come next. Both take any number of rows.
What `start.onnx` puts out goes into `step.onnx` under the same names; what a step puts out as `next.NAME` goes into the next
one as `NAME`, and `memory.…` stays as it was. To re-order hypotheses, take rows of all of them. Ids and the numbers of the
search are in `export.json`.

```
{use}
```

## Compared with the run it was made from

| | |
|---|---|
| largest difference of a logit | {found.logits:.1e}, over {found.tokens:,} tokens |
| sentences translated alike | {found.same} of {found.sentences} |
| seconds for them | {found.seconds:.2f}; in torch {found.seconds_before:.2f} |

Made by heedful {facts["heedful"]} from `{facts["checkpoint"]}`.
"""
