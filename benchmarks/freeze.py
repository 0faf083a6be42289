"""Freeze check: does the code still compute what it computed before a change?

    python benchmarks/freeze.py --write          # before: store the results in benchmarks/results/freeze.json
    python benchmarks/freeze.py                  # after: compute them again and compare

For every model family and task, and for the variants below: the shapes of the parameters in order, the losses of 20 training
steps, and what `--json` prints for translate (greedy, beam, n-best, sampling), evaluate, score, align, generate and inspect.
All on one thread, all numbers compared exactly, so both runs belong on one machine. Parameter names are not compared: renaming
one changes nothing. RENAMED maps keys of the stored results to their new names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peers.machine import machine_info

STORED = Path(__file__).parent / "results" / "freeze.json"
RENAMED = {  # key of a stored result: its name today
    "whatif": "interventions",
    "p_randomisation": "p_randomization",
    "ask": "views",
    "said": "predict",
    "fed": "consume",
    "leanings": "tendencies",
}
ADDED = {"precision", "unit"}  # keys that commands print since: not a difference where the stored result has none
TEXTS = {"note", "frequencies", "views", "analyses", "checkpoint"}  # texts for people, which may be reworded, and paths

WORDS = [f"w{i}" for i in range(20)]
COMMON = """
[tokenizer]
kind = "words"
min_frequency = 1

[training]
steps = 20
save_every = 20
validate_every = 10
report_every = 1
threads = 1
schedule = { warmup = 5 }
"""
TASKS = {
    "translation": """
[data]
train = { tsv = "pairs.tsv" }
valid = { tsv = "valid.tsv" }
test = { tsv = "valid.tsv" }
batch_tokens = 128

[task]
validation_sentences = 4

[search]
max_extra = 4
""",
    "language": """
[data]
form = "text"
train = { file = "book.txt" }
valid = { file = "valid.txt" }
test = { file = "valid.txt" }
block = 16
batch = 4

[task]
name = "language"
samples = 0

[search]
method = "sample"
""",
    "classification": """
[data]
form = "labeled"
train = { file = "labels.tsv" }
valid = { file = "labels.tsv" }
test = { file = "labels.tsv" }
batch = 8

[task]
name = "classification"
labels = ["no", "yes"]
""",
}
SMALL = "dim=16 layers=2"
ATTENTION = f"{SMALL} heads=2 feed_forward=32"
# (name, task, family, options of [model], other overrides)
RUNS: list[tuple[str, str, str, str, str]] = [
    ("transformer", "translation", "transformer", ATTENTION, ""),
    ("transformer-post", "translation", "transformer", f"{ATTENTION} norm=post dropout=0.2", ""),
    *(
        (f"transformer-{name}", "translation", "transformer", f"{ATTENTION} position={name}{extra}", "")
        for name, extra in (
            ("none", ""),
            ("learned", " max_positions=300"),
            ("relative", " relative_clip=2"),
            ("t5", ""),
            ("rotary", ""),
            ("alibi", ""),
        )
    ),
    ("transformer-window", "translation", "transformer", f"{ATTENTION} window=3", ""),
    ("transformer-experts", "translation", "transformer", f"{ATTENTION} experts=4", ""),
    ("transformer-swiglu", "translation", "transformer", f"{ATTENTION} activation=swiglu tie=none", ""),
    ("transformer-uneven", "translation", "transformer", f"{SMALL} heads=[2,1] decoder_heads=[1,2] cross_heads=[4,2]", ""),
    ("transformer-r-drop", "translation", "transformer", f"{ATTENTION} dropout=0.1", "task.r_drop=1.0"),
    (
        "transformer-ema",
        "translation",
        "transformer",
        ATTENTION,
        "training.accumulate=2 training.average=ema training.ema_decay=0.9",
    ),
    ("transformer-sequence", "translation", "transformer", ATTENTION, "task.sequence.method=risk"),
    ("transformer-bpe-dropout", "translation", "transformer", ATTENTION, "tokenizer.kind=bpe tokenizer.dropout=0.1"),
    ("sutskever", "translation", "sutskever", SMALL, ""),
    ("bahdanau", "translation", "bahdanau", "dim=16 readout=8 embedding=16", ""),
    ("luong", "translation", "luong", SMALL, ""),
    ("luong-local-p", "translation", "luong", f"{SMALL} scope=local-p radius=2", ""),
    ("gnmt", "translation", "gnmt", SMALL, ""),
    ("deep_att", "translation", "deep_att", SMALL, ""),
    ("convs2s", "translation", "convs2s", "channels=16 layers=2 dim=16", ""),
    ("bytenet", "translation", "bytenet", "dim=16 sets=1", ""),
    (
        "mixed",
        "translation",
        "mixed",
        'dim=16 heads=2 encoder=["lstm","self-attention"] decoder=["self-attention","convolution"]',
        "",
    ),
    ("gpt", "translation", "gpt", f"{SMALL} heads=2", ""),
    ("gpt-language", "language", "gpt", f"{SMALL} heads=2", ""),
    ("gpt-compressed", "language", "gpt", f'{SMALL} heads=2 reach=["local","compressed"] block=4', ""),
    ("gpt-classification", "classification", "gpt", f"{SMALL} heads=2", ""),
]
SEARCHES = {
    "greedy": ["-s", "method=greedy"],
    "beam": ["-s", "beam=4"],
    "n_best": ["-s", "beam=3", "-s", "n_best=3", "-s", "no_repeat=2"],
    "sample": ["-s", "method=sample", "-s", "top_k=5", "-s", "seed=3"],
}

ANALYSES = {  # key of the stored results: name of the result in them, analysis and options today
    "inspect": ("sentence", "attention"),
    "inspect --lens": ("lens", "lens"),
    "inspect --saliency": ("interventions", "saliency"),
    "inspect --alternatives 1": ("interventions", "alternatives", "--position", "1"),
}


def write_data() -> None:
    draw = random.Random(1)

    def sentence() -> list[str]:
        return [draw.choice(WORDS) for _ in range(draw.randint(2, 8))]

    for name, count in (("pairs", 60), ("valid", 12)):
        pairs = [sentence() for _ in range(count)]
        lines = [f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in pairs]
        Path(f"{name}.tsv").write_text("".join(lines))
        for side, at in (("source", 0), ("target", 1)):
            Path(f"{name}.{side}").write_text("".join(line.strip("\n").split("\t")[at] + "\n" for line in lines))
    Path("book.txt").write_text("".join(" ".join(sentence()) + "\n" for _ in range(60)))
    Path("valid.txt").write_text("".join(" ".join(sentence()) + "\n" for _ in range(20)))
    Path("labels.tsv").write_text("".join(f"{draw.choice(['no', 'yes'])}\t{' '.join(sentence())}\n" for _ in range(40)))


def heed(*arguments: str) -> str:
    """What a command writes to stdout."""
    from heedful.cli import run

    out, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(messages):
        code = run(list(arguments))
    assert code == 0, f"heed {' '.join(arguments)} ended with {code}: {out.getvalue()} {messages.getvalue()}"
    return out.getvalue()


def results(*arguments: str) -> Any:
    """The JSON of a command, one object for each line."""
    return [json.loads(line) for line in heed(*arguments, "--json").splitlines()]


def train(name: str, task: str, family: str, model: str, others: str) -> dict[str, Any]:
    import heedful

    Path("recipe.toml").write_text(TASKS[task] + COMMON)
    options = [f"model.{option}" for option in model.split()]
    heed("train", "recipe.toml", f"model.family={family}", *options, *others.split(), "--run", name, "--device", "cpu")
    logged = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    return {
        "shapes": [list(parameter.shape) for parameter in heedful.load(name).model.parameters()],
        "losses": [one["loss"] for one in logged if "valid" not in json.dumps(one) and "loss" in one],
    }


def use(name: str, task: str) -> Iterator[tuple[str, Any]]:
    """What the commands print for a run of this task."""
    if task == "translation":
        for kind, options in SEARCHES.items():
            yield f"translate {kind}", results("translate", name, "valid.source", *options)
        yield "score", results("score", name, "--source", "valid.source", "--target", "valid.target")
        yield "evaluate", results("evaluate", name, "--bootstrap", "100")
    if task == "language":
        yield "generate", results("generate", name, "--prompt", "w1 w2", "--length", "12")
        yield "generate greedy", results("generate", name, "--prompt", "w3", "--length", "12", "-s", "method=greedy")
        yield "evaluate", results("evaluate", name)
    if task == "classification":
        yield "evaluate", results("evaluate", name)
    yield "inspect", [{"model": as_stored(one, task)} for one in results("inspect", "summary", name)]
    if name in ("transformer", "bahdanau", "gpt"):
        for key, (part, analysis, *options) in ANALYSES.items():
            with contextlib.suppress(AssertionError):  # a translation may be empty
                found = results("inspect", analysis, name, "w1 w2 w3", *options)
                yield key, [{part: as_stored(one, task)} for one in found]
        if name == "transformer":  # stored under the name of the view
            heads = results("inspect", "heads", name, "--data", "valid.tsv")
            yield "inspect heads", [{"heads": one} for one in heads]
        yield "align", results("align", name, "--source", "valid.source", "--target", "valid.target") if name != "gpt" else None


def as_stored(result: dict[str, Any], task: str) -> dict[str, Any]:
    """A result of an analysis as it was stored: with the end token instead of all outputs, and of a classifier without the
    attention, which was not listed."""
    kept = {key: item for key, item in result.items() if key != "outputs" and (key, task) != ("attention", "classification")}
    return kept | ({"end": result["outputs"][-1]} if "outputs" in result else {})


def collect() -> dict[str, Any]:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HEED_CACHE"] = f"{folder}/cache"
        os.chdir(folder)
        write_data()
        for name, task, family, model, others in RUNS:
            found[name] = train(name, task, family, model, others)
            found[name] |= {key: one for key, one in use(name, task) if one is not None}
            print(f"{name}: {len(found[name]['losses'])} losses, {len(found[name]) - 2} results", file=sys.stderr)
    return found


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
    else:
        for key, item in items:
            if key in TEXTS:
                continue
            if key == "parts":  # parameters of each part of a model: parts may be renamed and joined
                item = sum(item.values())
            yield from leaves(item, (*path, str(key)))


def renamed(value: Any) -> Any:
    """The stored results under the names of today."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): renamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return RENAMED.get(value, value) if isinstance(value, str) else value


def differences(before: Any, now: Any) -> list[str]:
    old, new = dict(leaves(before)), dict(leaves(now))
    return [
        f"{' / '.join(path)}: {old.get(path, 'absent')!r} before, {new.get(path, 'absent')!r} now"
        for path in {**old, **new}
        if old.get(path, "absent") != new.get(path, "absent") and (path in old or path[-1] not in ADDED)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the results instead of comparing them")
    options = parser.parse_args()
    found = json.loads(json.dumps(collect()))
    if options.write:
        STORED.write_text(json.dumps(machine_info() | {"runs": found}, separators=(",", ":")) + "\n")
        return
    before = renamed(json.loads(STORED.read_text())["runs"])
    changed = differences(before, found)
    print("\n".join(changed[:40] + ([f"and {len(changed) - 40} more"] if len(changed) > 40 else [])))
    print(f"{len(found)} runs, {sum(1 for _ in leaves(found)):,} values compared, {len(changed)} differ")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
