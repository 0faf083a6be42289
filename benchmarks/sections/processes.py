"""Several processes, saving in the background, plans, data preparation at scale, prediction in shards, and back-translation."""

from __future__ import annotations

from sections import measured, read, table

CASES = {
    "alone": "one process, CUDA graphs",
    "alone_eager": "one process, eager",
    "ddp_1": "DDP, process group of one (NCCL), CUDA graphs",
    "fsdp_1": "FSDP2, process group of one (NCCL), eager",
    "ddp_2": "DDP, two processes on one GPU (gloo), CUDA graphs",
    "fsdp_2": "FSDP2, two processes on one GPU (gloo), eager",
}


def distributed() -> str:
    if not measured("distributed.json"):
        return ""
    results = read("distributed.json")
    rows = [
        [
            title,
            str(int(results[f"{name}_steps"])),
            f"{results[f'{name}_ms']:.1f}",
            f"{results[f'{name}_overhead_ms']:+.1f}",
            f"{results[f'{name}_exchange_ms']:.1f}" if f"{name}_exchange_ms" in results else "",
        ]
        for name, title in CASES.items()
        if f"{name}_ms" in results
    ]
    saving = ""
    if "async_ratio" in results:
        saving = (
            f"\nWhile a checkpoint of {results['async_save_seconds']:.1f} s is written in the background, updates take "
            f"{results['async_ratio']:.2f} x their time in the mean (median {results['async_ratio_median']:.2f} x); a plain "
            f"save stops training for {results['plain_save_seconds']:.1f} s.\n"
        )
    head = ["case", "updates", "ms", "overhead, ms", "exchange, ms"]
    return (
        f"## Process groups and asynchronous saving\n\nTransformer {results['size']}, {results['rows']} x {results['time']} "
        "random tokens per side and update: median time of an update, its difference to one process (FSDP2: to one eager "
        "process), and the time of the exchange of gradients by itself. Two processes on one GPU compute half of the batch "
        "each; they are not faster, and gloo exchanges through the memory of the CPU. "
        f"{results['device']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/distributed.py`\n\n{table(head, rows)}\n{saving}"
    )


def plans() -> str:
    if not measured("plan_processes.json"):
        return ""
    results = read("plan_processes.json")
    link = results["link_bytes_per_second"] / 1e9
    rows = [
        [
            str(row["processes"]),
            f"{1000 * row['predicted_seconds_per_step']:.0f}",
            f"{1000 * row['measured_seconds_per_step']:.0f}",
            f"{row['ratio']:.2f} x",
        ]
        for row in results["rows"]
    ]
    return (
        f"## Plans and measured processes\n\nA Transformer of {results['parameters']:,} parameters on {results['cores']} CPU "
        "cores, one thread for each process: the time of an update that `heed train --plan` predicts from updates of one "
        f"process and the measured link between two ({link:.1f} GB/s over gloo), and the median of "
        "training with that number of processes. More processes than cores share the cores "
        f"({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        "\n`python benchmarks/plan_processes.py --output FILE`\n\n"
        f"{table(['processes', 'predicted, ms', 'measured, ms', 'predicted / measured'], rows)}\n"
    )


MIB = 2**20


def preparation() -> str:
    if not measured("data_scale.json"):
        return ""
    results = read("data_scale.json")
    rows = []
    for point in results["points"]:
        encoding = point["stages"]["encode"]
        rows.append(
            [
                f"{point['pairs']:,}",
                f"{point['text_bytes'] / 1e6:,.0f}",
                f"{point['seconds']:.1f}",
                f"{point['pairs_per_cpu_second']:,}",
                f"{encoding['cores_used']:.2f}",
                f"{point['peak_anonymous_bytes'] / MIB:,.0f}",
                f"{point['peak_mapped_file_bytes'] / MIB:,.0f}",
            ]
        )
    head = ["pairs", "text, MB", "seconds", "pairs per core and second", "cores used in encoding", "anonymous memory, MiB"]
    goal, streamed = results["goal"], results["streamed"]
    memory, disk = (streamed[f"peak_{name}"] for name in ("anonymous_bytes", "bytes_on_disk"))
    return (
        "## Data preparation at scale\n\nGenerated pairs of 5 to 25 words, from raw text to the first update of a model: the "
        "check, training of a BPE tokenizer, encoding, and the plan of an epoch; the peak of anonymous memory of the process, "
        f"and of mapped pages of files, which the system can drop ({results['machine']}, {results['date']}). From these "
        f"points, {goal['pairs']:,} pairs would take {goal['seconds'] / 60:.0f} minutes and "
        f"{goal['peak_anonymous_bytes'] / MIB:,.0f} MiB: this is extrapolated, not measured.\n"
        f"\n`python benchmarks/data_scale.py --pairs 250000 1000000 10000000`\n\n{table([*head, 'mapped files, MiB'], rows)}\n"
        f"\nWith `data.max_store_megabytes = {streamed['max_store_megabytes']}`, an epoch of {streamed['pairs']:,} pairs, "
        f"whose tokens take {streamed['bytes_of_all_shards'] / 1e6:.0f} MB, had at most {disk / 1e6:.1f} MB on the disk, and "
        f"{memory / MIB:,.0f} MiB of anonymous memory.\n"
    )


def bulk() -> str:
    if not measured("bulk.json"):
        return ""
    results = read("bulk.json")
    shards = ", ".join(str(kill["shard"]) for kill in results["kills"])
    once = "each line is there exactly once" if results["each_exactly_once"] else "lines are missing or repeated"
    identical = "identical to" if results["identical_to_undisturbed"] else "different from"
    return (
        f"## Prediction in shards\n\n{results['lines']:,} lines in {results['shards']} shards, {results['inputs_per_part']} "
        f"inputs in each part: the process was killed {len(results['kills'])} times with SIGKILL, in shards {shards}, and "
        f"started again. In the joined output {once}, and it is byte for byte {identical} that of one process without a kill. "
        f"The model is tiny ({results['machine']}, {results['date']}).\n\n`python benchmarks/bulk.py --kills 5`\n"
    )


def backtranslation() -> str:
    if not measured("backtranslation.json"):
        return ""
    results = read("backtranslation.json")
    names = {"baseline": "the parallel half", "augmented": "and the synthetic pairs"}
    rows = [[title, f"{score['value']:.2f}", f"{score['low']:.2f} to {score['high']:.2f}"]
            for name, title in names.items() for score in [results["bleu"][name]]]  # fmt: skip
    difference = results["difference"]
    return (
        f"## Back-translation\n\nMulti30k, English to German, test2016: {results['parallel']:,} pairs are parallel; of "
        f"{results['monolingual']:,} others only the German side is used, translated into English by a model trained on the "
        f"parallel half ({results['bleu']['reverse']['value']:.2f} BLEU). Same recipe and number of updates, seed "
        f"{results['seed']}; difference {difference['difference']:+.2f} BLEU ({difference['low']:+.2f} to "
        f"{difference['high']:+.2f}, paired bootstrap). {results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/backtranslation.py`\n\n{table(['training data', 'BLEU', '95% interval'], rows)}\n"
    )
