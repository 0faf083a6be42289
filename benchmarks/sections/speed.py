"""Speed: training, decoding, and the time to a good model."""

from __future__ import annotations

from sections import measured, read, table


def training_gpu() -> str:
    results = read("train.json")
    larger = read("train_best.json")["results"] if measured("train_best.json") else []
    rows = [
        [
            f"{result['size']}, {result['rows']:,} x 32" if result in larger else result["size"],
            f"{result['tokens_per_second']['heedful']:,}",
            f"{result['tokens_per_second']['hf']:,} ({result['ratio']['hf']:.2f} x)",
            f"{result['tokens_per_second']['torch']:,} ({result['ratio']['torch']:.2f} x)",
            " / ".join(f"{result['peak_memory_bytes'][system] / 2**30:.1f}" for system in ("heedful", "hf", "torch")),
            f"{result['fraction_of_peak']:.0%}",
        ]
        for result in (*results["results"], *larger)
    ]
    dates = " and ".join(sorted({result.get("date", results["date"]) for result in results["results"]}))
    head = ["size", "heedful", "HF Marian", "nn.Transformer", "memory, GiB (ours / HF / torch)", "share of peak"]
    return (
        f"## Training on a GPU\n\nTarget tokens per second, bf16, {results['machine']}, torch {results['torch']}, {dates}; "
        "in brackets the speedup of heedful, the median of seven alternating blocks. Base and big: 800 x 32 random "
        "tokens per side unless given, vocabulary 37,000, all compiled. Small (d256, 3 + 3 layers, vocabulary "
        "10,000): real Multi30k batches of 4,096 tokens, padding not counted; the other libraries run eagerly there, since "
        "shapes vary between batches.\n"
        f"\n`python benchmarks/train.py --peers hf,torch`\n\n{table(head, rows)}\n"
    )


KERNELS = {  # name in varlen.json -> column
    "padded": "padded",
    "whole": "ours",
    "flat": "varlen",
    "by flash": "flash",
    "by cuDNN": "cuDNN",
    "by efficient": "memory-efficient",
}


def attention_kernels() -> str:
    if not measured("varlen.json"):
        return ""
    results = read("varlen.json")
    ways = [name for name in results["milliseconds"][0] if name != "shape"]
    rows = [
        [result["shape"], *(f"{result[way]:.3f}" if isinstance(result[way], float) else "" for way in ways)]
        for result in results["milliseconds"]
    ]
    return (
        "## Attention over short sequences\n\nMilliseconds, forward and backward, bf16, rows x tokens: padded, as torch "
        "selects its kernel; our kernel for short sequences; unpadded (torch's varlen); and each kernel of torch that supports "
        "the shape. Training uses ours up to 128 tokens. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/varlen.py --output FILE`\n\n{table(['shape', *(KERNELS[way] for way in ways)], rows)}\n"
    )


def training_cpu() -> str:
    names = [name for name in ("train_cpu.json", "train_cpu_bf16.json") if measured(name)]
    every = [read(name) for name in names]
    rows = [
        [
            result["precision"],
            f"{result['tokens_per_second']['heedful']:,.0f}",
            f"{result['tokens_per_second']['marian']:,.0f}",
            f"{result['median_ratio']:.2f} x ({min(result['ratios']):.2f} to {max(result['ratios']):.2f})",
            result["date"],
        ]
        for result in every
    ]
    return (
        "## Training on two CPU cores\n\nd256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens, dropout 0.1: target tokens per "
        "second, both in the same precision; bf16 is autocast, on a processor with bf16 instructions. The ratio is the median "
        f"of alternating blocks, in brackets the worst and the best. {every[0]['machine']}, torch {every[0]['torch']}.\n"
        "\n`python benchmarks/train_cpu.py`, `python benchmarks/train_cpu.py --precision bf16`\n"
        f"\n{table(['precision', 'heedful', 'HF Marian', 'speedup', 'date'], rows)}\n"
    )


def decoding() -> str:
    """One table per measured part."""
    known = {
        "decode_gpu.json": "Decoding on a GPU",
        "decode_cpu.json": "Decoding on two CPU cores",
        "decode_file_gpu.json": "Translation of a file, on a GPU",
        "decode_file_cpu.json": "Translation of a file, on two CPU cores",
    }
    return "\n".join(decoded(name, title) for name, title in known.items() if measured(name))


def decoded(name: str, title: str) -> str:
    results = read(name)
    head = ["", "system", "tokens/s", "sentences/s", "first call, s", "BLEU", "speedup over"]
    rows = [
        [
            result["row"],
            result["system"],
            f"{result['tokens_per_second']:,.0f}",
            f"{result['sentences_per_second']:,.1f}",
            f"{result['first_call_seconds']:.2f}",
            f"{result['bleu']:.2f}" if "bleu" in result else "",
            ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in result["ratio"].items() if not peer.startswith("heedful")),
        ]
        for result in results["rows"]
    ]
    text = (
        "Base size (d512, 6 + 6 layers, vocabulary 37,000), the same random weights in all systems, sources of 32 tokens, 64 "
        "new tokens per row."
    )
    if "file" in results:
        same, plain = results["file"]["same_as_heedful_fp32"], results["file"]["plain"]
        apart = ", each system in its own process" if results["file"].get("apart") else ""
        text = (
            f"The {results['file']['sentences']:,} sentences of Multi30k test2016 with the weights of one trained model, "
            f"beam 5; HF in sorted batches of 250{apart}. Compared with searching one "
            f"sentence at a time, {plain['same']} of {plain['compared']} of ours in fp32 are identical, {plain['ties']} tie, "
            f"{len(plain['different'])} differ; identical to ours in fp32: "
            + ", ".join(f"{system} {share:.1%}" for system, share in same.items() if system != "heedful fp32")
            + "."
        )
    part = "file" if "file" in results else "gpu" if "gpu" in name else "cpu"
    return (
        f"## {title}\n\n{text} Medians of alternating blocks; the first call, with graph capture or weight packing, is "
        f"listed separately. {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/decode.py --parts {part} --output FILE`\n\n{table(head, rows)}\n"
    )


def first_good_model() -> str:
    results = read("time_to_bleu.json")
    return (
        "## Time to a given BLEU\n\nMulti30k English to German, from the start of the command to the end of training, "
        f"including imports, data, vocabulary, graph capture and validation: {results['seconds']:.1f} s to "
        f"{results['scores']['bleu']['value']:.2f} BLEU on test2016 ({results['machine']}, {results['date']}; "
        "a peer on the same data reached 36.9 in 326 s).\n"
        "\n`python benchmarks/time_to_bleu.py`\n"
    )
