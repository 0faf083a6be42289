"""Write docs/results.md from benchmarks/results, and the headers of recipes: every figure there comes from a file here.

python benchmarks/report.py
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from alignment_rows import ALIGNMENT_HEAD, alignment_rows
from families_rows import families_head, families_rows, families_text, update_family_recipes
from headers import update_recipes
from position_rows import position_rows
from pruning_rows import HEAD, pruning_rows, pruning_text
from quality_rows import Row, bleu, mean, quality_rows
from scaling_rows import lengths_table, lengths_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def training_gpu() -> str:
    found = read("train.json")
    rows = [
        [
            one["size"],
            f"{one['tokens_per_second']['heedful']:,}",
            f"{one['tokens_per_second']['hf']:,} ({one['ratio']['hf']:.2f} x)",
            f"{one['tokens_per_second']['torch']:,} ({one['ratio']['torch']:.2f} x)",
            " / ".join(f"{one['peak_memory_bytes'][system] / 2**30:.1f}" for system in ("heedful", "hf", "torch")),
            f"{one['fraction_of_peak']:.0%}",
        ]
        for one in found["results"]
    ]
    head = ["size", "heedful", "HF Marian", "nn.Transformer", "memory, GiB (ours / HF / torch)", "of the chip's peak"]
    return (
        f"## Training on a GPU\n\nTarget tokens per second, bf16, {found['machine']}, torch {found['torch']}, {found['date']}; "
        "in brackets how many times as fast we are, the median of seven alternating blocks. Base and big: 800 x 32 random "
        "tokens a side, vocabulary 37,000, all compiled. Small (d256, 3 + 3 layers, vocabulary 10,000): real Multi30k "
        "batches of 4,096 tokens, padding not counted; the peers run eagerly there, since each batch has another shape.\n"
        f"\n`python benchmarks/train.py --peers hf,torch`\n\n{table(head, rows)}\n"
    )


def training_cpu() -> str:
    found = read("train_cpu.json")
    speeds = found["tokens_per_second"]
    return (
        f"## Training on two CPU cores\n\nd256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens, fp32, dropout 0.1: heedful "
        f"{speeds['heedful']:,.0f}, HF Marian {speeds['marian']:,.0f} target tokens per second; median ratio of seven "
        f"alternating blocks {found['median_ratio']:.2f} ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        "\n`python benchmarks/train_cpu.py`\n"
    )


def quality() -> str:
    found = quality_rows(RESULTS / "quality")
    if not found:
        return ""
    head = ["data", "seeds", "BLEU, cased", "lower-cased", "chrF", "seconds", "HF Marian", "difference", "machine", "date"]
    signatures = sorted({one["scores"]["bleu"]["signature"] for row in found for one in row.seeds})
    return (
        "## Quality\n\nSingle models on the test sets of their data: the mean of the seeds and each of them. Seconds are "
        "those of the whole training, data, compilation and validation included, on a machine that several runs shared. "
        "Settings were chosen on the validation sets. HF Marian is a model of the same size and tokenizer, trained by "
        "`benchmarks/peers/translation.py` for the seconds in brackets; of several the one with the best validation BLEU. "
        f"Signature: {' and '.join(f'`{signature}`' for signature in signatures)}.\n\n`python benchmarks/quality.py --help`\n"
        f"\n{table(head, [cells(row) for row in found])}\n"
    )


def cells(row: Row) -> list[str]:
    each = f" ({', '.join(f'{bleu(one):.2f}' for one in row.seeds)})" if len(row.seeds) > 1 else ""
    return [
        f"{row.data}, {row.source} -> {row.target}",
        str(len(row.seeds)),
        f"{mean(row.seeds):.2f}{each}",
        f"{mean(row.seeds, 'lowercased'):.2f}",
        f"{statistics.mean(one['scores']['chrf']['value'] for one in row.seeds):.2f}",
        f"{statistics.mean(one['train_seconds'] for one in row.seeds):.0f}",
        f"{bleu(row.peer):.2f} ({row.peer['train_seconds']:.0f} s)" if row.peer else "",
        f"{mean(row.seeds) - bleu(row.peer):+.2f}" if row.peer else "",
        ", ".join(sorted({one["machine"] for one in row.seeds})),
        ", ".join(sorted({one["date"] for one in row.seeds})),
    ]


def decoding() -> str:
    """One table for each part that was measured."""
    known = {
        "decode_gpu.json": "Decoding on a GPU",
        "decode_cpu.json": "Decoding on two CPU cores",
        "decode_file_gpu.json": "A file from text to text, on a GPU",
        "decode_file_cpu.json": "A file from text to text, on two CPU cores",
    }
    return "\n".join(decoded(name, title) for name, title in known.items() if (RESULTS / name).exists())


def decoded(name: str, title: str) -> str:
    found = read(name)
    head = ["", "system", "tokens/s", "sentences/s", "first call, s", "BLEU", "times as fast as"]
    rows = [
        [
            one["row"],
            one["system"],
            f"{one['tokens_per_second']:,.0f}",
            f"{one['sentences_per_second']:,.1f}",
            f"{one['first_call_seconds']:.2f}",
            f"{one['bleu']:.2f}" if "bleu" in one else "",
            ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in one["ratio"].items() if not peer.startswith("heedful")),
        ]
        for one in found["rows"]
    ]
    text = (
        "Base size (d512, 6 + 6 layers, vocabulary 37,000), the same random weights in all systems, sources of 32 tokens, 64 "
        "new tokens a row."
    )
    if "file" in found:
        same, plain = found["file"]["same_as_heedful_fp32"], found["file"]["plain"]
        text = (
            f"The {found['file']['sentences']:,} sentences of Multi30k test2016 with the weights of one trained model, beam 5; "
            "HF in sorted batches of 250. Of ours in fp32 "
            f"{plain['same']} of {plain['compared']} are those of a search of one sentence at a time, {plain['ties']} tie, "
            f"{len(plain['different'])} differ; the same as ours in fp32 are: "
            + ", ".join(f"{system} {share:.1%}" for system, share in same.items() if system != "heedful fp32")
            + "."
        )
    part = "file" if "file" in found else "gpu" if "gpu" in name else "cpu"
    return (
        f"## {title}\n\n{text} Medians of alternating blocks; the first call, with capture or packing, is told apart. "
        f"{found['machine']}, torch {found['torch']}, {found['date']}.\n"
        f"\n`python benchmarks/decode.py --parts {part} --output FILE`\n\n{table(head, rows)}\n"
    )


def first_good_model() -> str:
    found = read("time_to_bleu.json")
    return (
        "## Time to a good model\n\nMulti30k English to German, from the command to the end of training, with imports, data, "
        f"vocabulary, capture and validation: {found['seconds']:.1f} s to {found['scores']['bleu']['value']:.2f} BLEU on "
        f"test2016 ({found['machine']}, {found['date']}; a peer on the same data reached 36.9 in 326 s).\n"
        "\n`python benchmarks/time_to_bleu.py`\n"
    )


def families() -> str:
    if not (RESULTS / "families.json").exists():
        return ""
    found = read("families.json")
    return (
        f"## Families of models\n\n{families_text(found)}\n\n`python benchmarks/families.py`\n"
        f"\n{table(families_head(found), families_rows(found))}\n\n![BLEU against length](pictures/families-length.png)\n"
    )


def alignment() -> str:
    if not (RESULTS / "alignment.json").exists():
        return ""
    found = read("alignment.json")
    return (
        "## Word alignment\n\nAlignment error rate on the 200 test sentences of alignment-en-fr; models trained on anki-en-fr; "
        "thresholds, heads and rules chosen on the 100 validation sentences. By layer: the mean of all heads, one link for "
        f"every target word ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/alignment.py`\n\n{table(ALIGNMENT_HEAD, alignment_rows(found))}\n"
    )


def positions() -> str:
    if not (RESULTS / "positions.json").exists():
        return ""
    found = read("positions.json")
    head, *rows = position_rows(found)
    return (
        f"## Positions beyond training\n\nA Transformer of two layers for each scheme learns to {found['toy']} up to "
        f"{found['trained_to']} symbols in {found['steps']} steps and is asked for up to twice as many: the share of sequences "
        "that greedy search gets right to the last symbol, by their length, and of symbols that are right after a right "
        f"beginning. One seed, one thread ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/positions.py`\n\n{table(head, rows)}\n\n![by length](pictures/positions-beyond.png)\n"
    )


def pruning() -> str:
    if not (RESULTS / "pruning.json").exists():
        return ""
    found = read("pruning.json")
    return (
        f"## Fewer heads\n\n{pruning_text(found)}\n\n`python benchmarks/pruning.py --help`\n"
        f"\n{table(HEAD, pruning_rows(found))}\n\n![BLEU against heads kept](pictures/pruning.png)\n"
    )


def listening() -> str:
    found = read("listening.json")
    asked = list(found["results"][0]["more"])
    rows = [[one["size"], *(f"{one['more'][name]:+.1%}" for name in asked)] for one in found["results"]]
    same = all(one["bit_equal"] for one in found["results"])
    return (
        "## What taps cost\n\nA forced pass over 32 pairs of 32 tokens, eager, against the same model with its taps taken out; "
        f"outputs {'are bit-equal' if same else 'DIFFER'}. Medians of alternating blocks on {found['threads']} threads; two "
        f"percent either way is noise ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/listening.py`\n\n{table(['size', *asked], rows)}\n"
    )


def scaling() -> str:
    found = read("scaling_cpu.json")
    pictures = "\n".join(
        f"![{name}](pictures/scaling-{name}.png)"
        for name in ("length", "size", "batch", "families", "data")
        if (ROOT / "docs" / "pictures" / f"scaling-{name}.png").exists()
    )
    dates = " and ".join(sorted({part["date"] for part in found.values()}))
    growing = found.get("families")
    return (
        f"## Cost as work grows\n\nOne CPU thread, torch {found['length']['torch']}, {dates}; the layers are "
        f"those of docs/concepts/sequence-layers.md.\n\n`python benchmarks/scaling.py`\n\n{pictures}\n"
    ) + (f"\n{lengths_text(growing)}\n\n{table(*lengths_table(growing))}\n" if growing else "")


def survival() -> str:
    found = read("kill.json")
    same = all(found["identical"].values())
    return (
        f"## Killed and continued\n\n{found['kills']} times SIGKILL at random moments of runs of {found['steps']} steps, each "
        "time the same command again: weights, optimiser, running average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of a run that was never stopped ({found['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )


def main() -> None:
    parts = [training_gpu(), training_cpu(), decoding(), quality(), first_good_model(), families()]
    parts += [alignment(), positions(), pruning(), listening(), scaling(), survival()]
    written = "\n".join(part for part in parts if part)
    text = f"# Results\n\nWritten by `python benchmarks/report.py` from `benchmarks/results`.\n\n{written}"
    (ROOT / "docs" / "results.md").write_text(text)
    print(text)
    for said in (*update_recipes(RESULTS / "quality"), *update_family_recipes(read("families.json"))):
        print(said, file=sys.stderr)


if __name__ == "__main__":
    main()
