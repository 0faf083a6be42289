"""How fast: training, decoding, and the way to a first good model."""

from __future__ import annotations

from sections import measured, read, table


def training_gpu() -> str:
    found = read("train.json")
    larger = read("train_best.json")["results"] if measured("train_best.json") else []
    rows = [
        [
            f"{one['size']}, {one['rows']:,} x 32" if one in larger else one["size"],
            f"{one['tokens_per_second']['heedful']:,}",
            f"{one['tokens_per_second']['hf']:,} ({one['ratio']['hf']:.2f} x)",
            f"{one['tokens_per_second']['torch']:,} ({one['ratio']['torch']:.2f} x)",
            " / ".join(f"{one['peak_memory_bytes'][system] / 2**30:.1f}" for system in ("heedful", "hf", "torch")),
            f"{one['fraction_of_peak']:.0%}",
        ]
        for one in (*found["results"], *larger)
    ]
    dates = " and ".join(sorted({one.get("date", found["date"]) for one in found["results"]}))
    head = ["size", "heedful", "HF Marian", "nn.Transformer", "memory, GiB (ours / HF / torch)", "of the chip's peak"]
    return (
        f"## Training on a GPU\n\nTarget tokens per second, bf16, {found['machine']}, torch {found['torch']}, {dates}; "
        "in brackets how many times as fast we are, the median of seven alternating blocks. Base and big: 800 x 32 random "
        "tokens a side where nothing else is said, vocabulary 37,000, all compiled. Small (d256, 3 + 3 layers, vocabulary "
        "10,000): real Multi30k batches of 4,096 tokens, padding not counted; the peers run eagerly there, since each batch "
        "has another shape.\n"
        f"\n`python benchmarks/train.py --peers hf,torch`\n\n{table(head, rows)}\n"
    )


def attention_kernels() -> str:
    if not measured("varlen.json"):
        return ""
    found = read("varlen.json")
    ways = [name for name in found["milliseconds"][0] if name != "shape"]
    rows = [
        [one["shape"], *(f"{one[way]:.3f}" if isinstance(one[way], float) else "" for way in ways)]
        for one in found["milliseconds"]
    ]
    return (
        "## Attention over short sequences\n\nMilliseconds, forward and backward, bf16, rows x tokens: padded as torch calls "
        "it, our kernel for whole sequences, flat tokens without padding (torch's varlen), and torch's kernels one by one "
        "where they take the shape. Training takes ours up to 128 tokens. "
        f"{found['machine']}, torch {found['torch']}, {found['date']}.\n"
        f"\n`python benchmarks/varlen.py --output FILE`\n\n{table(['shape', *ways], rows)}\n"
    )


def training_cpu() -> str:
    names = [name for name in ("train_cpu.json", "train_cpu_bf16.json") if measured(name)]
    every = [read(name) for name in names]
    rows = [
        [
            one["precision"],
            f"{one['tokens_per_second']['heedful']:,.0f}",
            f"{one['tokens_per_second']['marian']:,.0f}",
            f"{one['median_ratio']:.2f} x ({min(one['ratios']):.2f} to {max(one['ratios']):.2f})",
            one["date"],
        ]
        for one in every
    ]
    return (
        "## Training on two CPU cores\n\nd256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens, dropout 0.1: target tokens per "
        "second, both in the same precision; bf16 is autocast, on a processor that multiplies bf16. The ratio is the median of "
        f"alternating blocks, in brackets the worst and the best. {every[0]['machine']}, torch {every[0]['torch']}.\n"
        "\n`python benchmarks/train_cpu.py`, `python benchmarks/train_cpu.py --precision bf16`\n"
        f"\n{table(['precision', 'heedful', 'HF Marian', 'times as fast', 'date'], rows)}\n"
    )


def decoding() -> str:
    """One table for each part that was measured."""
    known = {
        "decode_gpu.json": "Decoding on a GPU",
        "decode_cpu.json": "Decoding on two CPU cores",
        "decode_file_gpu.json": "A file from text to text, on a GPU",
        "decode_file_cpu.json": "A file from text to text, on two CPU cores",
    }
    return "\n".join(decoded(name, title) for name, title in known.items() if measured(name))


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
        apart = ", each system in a process of its own" if found["file"].get("apart") else ""
        text = (
            f"The {found['file']['sentences']:,} sentences of Multi30k test2016 with the weights of one trained model, beam 5; "
            f"HF in sorted batches of 250{apart}. Of ours in fp32 "
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
