"""Classification of texts on a CPU compared with Hugging Face's pipeline: the same weights, tokenizer and texts.

    python benchmarks/classify_cpu.py
    python benchmarks/classify_cpu.py --texts 200 --blocks 1

From text to labels: tokenization, batching, the model (BERT, d256, 4 layers, fp32) and the labels. A run is trained for a few
steps on SST-2 and written as a folder of transformers; both systems load their folder in a process of their own, and only one
runs at a time. The pipeline is measured at several batch sizes, and the fastest is compared: alternating blocks, median of the
ratios of texts per second. The same with texts that the user of the pipeline sorts by length first, which is harder to beat.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from peers.machine import machine_info
from peers.processes import in_processes
from rich.console import Console

import heedful
from heedful.config.toml import write_toml
from heedful.data.input_lines import read_texts
from heedful.tasks.classification.predictor import Classifier

DIM, LAYERS, HEADS, VOCAB, MAX_LENGTH = 256, 4, 4, 8000, 128
BATCH_SIZES = (1, 8, 32, 64, 128)
RESULTS = Path(__file__).parent / "results"
Variant = tuple[int, bool]  # batch size, sorted by length
PARTS = {  # ours -> theirs, in each layer
    "self_attention.out": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.rise": "intermediate.dense",
    "feed_forward.fall": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}


def train_run(folder: Path, steps: int) -> Path:
    config = {
        "data": {"form": "labeled", "folder": "sst2", "max_length": MAX_LENGTH, "batch": 32},
        "task": {"name": "classification", "labels": ["0", "1"]},
        "tokenizer": {"kind": "wordpiece", "vocab": VOCAB, "lowercase": True},
        "model": {
            "family": "bert",
            "dim": DIM,
            "layers": LAYERS,
            "heads": HEADS,
            "max_positions": MAX_LENGTH,
            "pooler": True,
        },
        "training": {
            "steps": steps,
            "save_every": steps,
            "validate_every": steps,
            "schedule": {"name": "constant", "learning_rate": 3e-4, "warmup": 10},
        },
    }
    recipe = folder / "recipe.toml"
    recipe.write_text(write_toml(config))
    heedful.train(recipe, run=folder / "run", device="cpu", console=Console(quiet=True))
    return folder / "run"


def write_reference(run: Path, folder: Path) -> None:
    """The weights and the tokenizer of a run as a folder of transformers."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    classifier = Classifier.load(run, device="cpu")
    tokenizer = classifier.system.target_tokenizer
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * DIM,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=tokenizer.specials.pad,
        num_labels=2,
        id2label={0: "0", 1: "1"},
        label2id={"0": 0, "1": 1},
    )
    model = BertForSequenceClassification(config)
    missing = model.load_state_dict(reference_weights(classifier), strict=False)
    assert not missing.unexpected_keys and all("position_ids" in key for key in missing.missing_keys), missing
    model.eval().save_pretrained(folder)
    library = Tokenizer.from_str(json.dumps(tokenizer.codec.content()))
    library.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", tokenizer.specials.start), ("</s>", tokenizer.specials.end)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=library,
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        model_max_length=MAX_LENGTH,
    )
    fast.save_pretrained(folder)


def reference_weights(classifier: Classifier) -> dict[str, torch.Tensor]:
    """The weights of a classifier under the names of BertForSequenceClassification."""
    ours = classifier.classifier.state_dict()
    names = {
        "body.embedding.weight": "bert.embeddings.word_embeddings.weight",
        "body.position.table.weight": "bert.embeddings.position_embeddings.weight",
        "body.segment.weight": "bert.embeddings.token_type_embeddings.weight",
        "body.embedding_norm": "bert.embeddings.LayerNorm",
        "body.pooler": "bert.pooler.dense",
        "head": "classifier",
    }
    names |= {
        f"body.layers.{i}.{own}": f"bert.encoder.layer.{i}.{other}" for i in range(LAYERS) for own, other in PARTS.items()
    }
    weights = {}
    for own, other in names.items():
        for end in [""] if own in ours else [".weight", ".bias"]:
            weights[other + end] = ours[own + end]
    for i in range(LAYERS):
        for end in ("weight", "bias"):
            blocks = ours[f"body.layers.{i}.self_attention.project.{end}"].chunk(3)
            for name, block in zip(("query", "key", "value"), blocks, strict=True):
                weights[f"bert.encoder.layer.{i}.attention.self.{name}.{end}"] = block.contiguous()
    return weights


Timed = tuple[float, list[str]]  # seconds, labels


def make_ours(folder: Path, threads: int) -> Callable[[Sequence[str]], Timed]:
    torch.set_num_threads(threads)
    classifier = Classifier.load(folder / "run", device="cpu", precision="fp32")

    def work(texts: Sequence[str]) -> Timed:
        started = time.perf_counter()
        labels = classifier.predict(texts)
        return time.perf_counter() - started, labels

    return work


def make_pipeline(folder: Path, threads: int) -> Callable[[Sequence[str], Variant], Timed]:
    from transformers import pipeline

    torch.set_num_threads(threads)
    classify = pipeline("text-classification", model=str(folder / "reference"), device=-1, dtype=torch.float32)

    def work(texts: Sequence[str], variant: Variant) -> Timed:
        size, ordered = variant
        started = time.perf_counter()
        order = sorted(range(len(texts)), key=lambda at: len(texts[at])) if ordered else range(len(texts))
        found = classify([texts[at] for at in order], batch_size=size, truncation=True, max_length=MAX_LENGTH)
        labels = [""] * len(texts)
        for at, one in zip(order, found, strict=True):
            labels[at] = one["label"]
        return time.perf_counter() - started, labels

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="training steps before the measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS / "classify_cpu.json")
    options = parser.parse_args()
    texts = [line.split("\t", 1)[1] for line in read_texts(Path("sst2/train.tsv.gz"))][: options.texts]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reference(train_run(folder, options.steps), folder / "reference")
        makers: dict[str, Callable[[], Any]] = {
            "heedful": partial(make_ours, folder, options.threads),
            "pipeline": partial(make_pipeline, folder, options.threads),
        }
        with in_processes(makers) as systems:
            ours, theirs = systems["heedful"], systems["pipeline"]
            sample = texts[: max(len(texts) // 10, 1)]
            _, labels = ours(sample)
            seconds = {variant: theirs(sample, variant) for variant in [(n, way) for n in BATCH_SIZES for way in (False, True)]}
            best = {
                name: min((v for v in seconds if v[1] == ordered), key=lambda variant: seconds[variant][0])
                for name, ordered in (("pipeline", False), ("pipeline_sorted", True))
            }
            blocks: list[dict[str, float]] = []
            equal = []
            for _ in range(options.blocks):
                mine = ours(texts)
                timed = {name: theirs(texts, variant) for name, variant in best.items()}
                blocks.append({"heedful": mine[0]} | {name: one[0] for name, one in timed.items()})
                equal += [sum(a == b for a, b in zip(mine[1], one[1], strict=True)) / len(texts) for one in timed.values()]
    ratios = {name: [block[name] / block["heedful"] for block in blocks] for name in best}
    result = {
        "texts_per_second": {
            name: round(len(texts) / statistics.median(block[name] for block in blocks), 1) for name in ("heedful", *best)
        },
        "median_ratio": {name: round(statistics.median(of), 3) for name, of in ratios.items()},
        "ratios": {name: [round(ratio, 3) for ratio in of] for name, of in ratios.items()},
        "pipeline_batch_size": {name: variant[0] for name, variant in best.items()},
        "pipeline_texts_per_second": {
            f"{size}{', sorted' if way else ''}": round(len(sample) / one[0], 1) for (size, way), one in seconds.items()
        },
        "equal_labels": min(equal),
        "label_1": labels.count("1") / len(labels),
        "texts": len(texts),
        "threads": options.threads,
        "precision": "fp32",
        **machine_info("transformers"),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
