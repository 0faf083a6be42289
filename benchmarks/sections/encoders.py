"""Classification, tagging and masked language models."""

from __future__ import annotations

from html import escape
from typing import Any

from label_rows import HEAD, label_rows

from sections import RESULTS, measured, read, table

LABELS = {"0": "negative", "1": "positive"}  # of IMDb
SYSTEMS = {  # name in masked_speed.json and vision_speed.json -> row
    "heedful": "heedful, without options",
    "heedful compiled": "heedful, `training.compile=true`",
    "hf default": "HF, torch.compile",
    "hf max-autotune-no-cudagraphs": "HF, torch.compile, max-autotune-no-cudagraphs",
}
PIPELINES = {"pipeline": "HF pipeline", "pipeline_sorted": "HF pipeline, texts sorted by length"}


def labels() -> str:
    baselines = read("baselines.json") if measured("baselines.json") else None
    rows = label_rows(RESULTS / "language", baselines)
    if not rows:
        return ""
    return (
        "## Text classification and tagging\n\nAccuracy of labels (of words for UD English EWT, universal part of speech): "
        "the mean over seeds, and each seed. Checkpoints were selected on the validation data; seconds are those of the whole "
        "training, validation included, without pre-training. `sst2-gpt1` starts from `gpt1-reviews`, `sst2-bert` from "
        "`bert-reviews`, and recipes that end in `roberta` from `roberta-reviews`. The validation phrases of SST-2, used by "
        "`sst2-gpt1`, are often parts of training phrases; its test sentences are not. Recipes with `data.split` are "
        "validated on a part of the training data without near-duplicates of the rest. Baselines, in plain text, are fitted "
        "on the training data: logistic regression on words (bag of words), or on words and pairs of words with naive Bayes "
        "weights (naive Bayes features; Wang and Manning, 2012), and an averaged perceptron (Collins, 2002), among others.\n"
        "\n`python benchmarks/language.py --help`, `python benchmarks/baselines.py`\n"
        f"\n{table(HEAD, rows)}\n{paired_comparison()}"
    )


def paired_comparison() -> str:
    """BERT and GPT-1 on the same test sentences, one run each."""
    if not measured("sst2_bert_against_gpt1.json"):
        return ""
    results = read("sst2_bert_against_gpt1.json")
    accuracy = results["comparison"]["accuracy"]
    low, high = (f"{100 * accuracy[bound]:+.1f}" for bound in ("low", "high"))
    return (
        f"\n`sst2-bert` compared with `sst2-gpt1` on the same {results['examples']} test sentences of SST-2, one run each: "
        f"accuracy {100 * accuracy['difference']:+.1f} points, 95% interval {low} to {high} ({accuracy['verdict']}).\n"
        "\n`heed evaluate RUN --against OTHER --json`\n"
    )


def update_table(results: dict[str, Any], unit: str) -> str:
    """The systems of masked_speed.py or vision_speed.py."""
    speed, ratio = results[f"{unit}_per_second"], results["ratio"]
    rows = [
        [
            SYSTEMS[name],
            f"{speed[name]:,}" if name in speed else "",
            f"{ratio[name]:.2f} x" if name in ratio else "",
            "over the limit of compilation" if seconds is None else f"{seconds:.1f}",
        ]
        for name, seconds in results["first_updates_seconds"].items()
    ]
    return table(["system", f"{unit}/s", "speedup", "first updates, s"], rows)


def masked_training() -> str:
    if not measured("masked_speed.json"):
        return ""
    results = read("masked_speed.json")
    return (
        f"## Masked-LM training on a GPU\n\nBERT {results['size']}, {results['rows']} x {results['tokens']} tokens, bf16, the "
        "same optimizer: input tokens per second, and the speedup over the fastest HF system, medians of alternating blocks. "
        f"The first updates capture or compile the step. {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/masked_speed.py`\n\n{update_table(results, 'tokens')}\n"
    )


def vision_training() -> str:
    if not measured("vision_speed.json"):
        return ""
    results = read("vision_speed.json")
    return (
        "## Vision Transformer training on a GPU\n\nViT-B/16, 224 x 224 pixels, batches of "
        f"{results['batch']} images, bf16, the same optimizer: images per second, and the speedup over the fastest HF system, "
        "medians of alternating blocks. The first updates capture the step, or compile it with the cache of an earlier run. "
        f"{results['machine']}, torch {results['torch']}, transformers {results['transformers']}, {results['date']}.\n"
        f"\n`python benchmarks/vision_speed.py`\n\n{update_table(results, 'images')}\n"
    )


def fashion_mnist() -> str:
    if not measured("fashion_mnist.json"):
        return ""
    runs = read("fashion_mnist.json")["runs"]
    rows = [
        [
            run["recipe"],
            str(run["seed"]),
            f"{run['steps']:,}",
            f"{100 * run['accuracy']:.2f}%",
            " to ".join(f"{100 * bound:.1f}" for bound in run["interval"]),
            f"{run['command_seconds']:.0f}" if "command_seconds" in run else "",
            run["machine"],
            run["date"],
        ]
        for run in runs
    ]
    head = ["recipe", "seed", "updates", "test accuracy", "95% interval", "seconds of the command", "machine", "date"]
    return (
        "## Fashion-MNIST\n\nVision Transformers trained on the 60,000 training images only, 5% of which are validation data; "
        "the checkpoint that is best on them is tested. The time limits of the recipes are 2.4 minutes (one H200, used by "
        "nothing else) and 4.8 minutes (two CPU cores).\n"
        f"\n`heed train fashion-mnist seed=1`, `heed evaluate RUN`\n\n{table(head, rows)}\n"
    )


def classification_cpu() -> str:
    if not measured("classify_cpu.json"):
        return ""
    results = read("classify_cpu.json")
    speed = results["texts_per_second"]
    rows = [["heedful", f"{speed['heedful']:,.0f}", "", ""]]
    for name, ratios in results["ratios"].items():
        ratio = f"{results['median_ratio'][name]:.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append([PIPELINES[name], f"{speed[name]:,.0f}", str(results["pipeline_batch_size"][name]), ratio])
    return (
        f"## Classification of texts on two CPU cores\n\n{results['texts']:,} phrases of SST-2, from text to labels, with the "
        f"same weights and tokenizer (BERT, d256, 4 layers, {results['precision']}, {results['threads']} threads): texts per "
        "second, and the speedup of heedful over HF's text-classification pipeline at its fastest batch size, the median of "
        "alternating blocks, in brackets the worst and the best. Labels are equal for "
        f"{results['equal_labels']:.1%} of the texts. {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        "\n`python benchmarks/classify_cpu.py`\n"
        f"\n{table(['system', 'texts/s', 'batch size', 'speedup of heedful'], rows)}\n"
    )


def document_sentences() -> str:
    if not measured("document_sentences.json"):
        return ""
    results = read("document_sentences.json")
    fall = results["mean_fall"]
    head = [
        "label",
        "probability",
        "without the top sentence",
        "without a random one",
        "sentences",
        "weight of the top",
        "top sentence",
    ]
    return (
        "## Sentence attention in reviews\n\nHierarchical attention on IMDb "
        f"({results['accuracy']:.1%} of test labels correct): is the sentence with the largest attention weight important for "
        f"the prediction? For {results['documents']} test reviews of at least three sentences, the probability of the "
        "predicted label without that sentence, and without another one drawn at random. Removing the top sentence lowers "
        f"it further in {results['top_falls_further']:.1%} of the reviews; the mean decrease is {fall['without_top']:.3f}, "
        f"compared with {fall['without_random']:.3f}. The first {len(results['shown'])} reviews are shown. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/document_sentences.py RUN`\n\n{table(head, [sentence_row(one) for one in results['shown']])}\n"
    )


def sentence_row(one: dict[str, Any]) -> list[str]:
    probabilities = [f"{one[name]:.4f}" for name in ("probability", "without_top", "without_random")]
    sentences = [str(one["sentences"]), f"{one['its_weight']:.2f}"]
    return [LABELS[one["label"]], *probabilities, *sentences, escape(one["top_sentence"], quote=False).replace("|", "\\|")]
