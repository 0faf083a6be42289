"""Text generation with GPT-2 small (124M parameters, 50,257 tokens, random weights) compared with Hugging Face and CTranslate2.

    python benchmarks/generate.py --parts gpu --output benchmarks/results/generate_gpu.json
    python benchmarks/generate.py --parts cpu --output benchmarks/results/generate_cpu.json

gpu    bf16, prompts of 16 tokens, 512 new tokens, 1 and 64 sequences; HF `generate` with a static and with a dynamic cache
cpu    two threads, 64 new tokens, one sequence: ours and HF in fp32, ours and CTranslate2 in int8

All sides decode greedily from the same weights and prompts. The fraction of the memory limit compares the time of a step with
reading all weights and the keys and values of an average step once, at the bandwidth of a copy measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peers.machine import machine_info

from heedful.config.bounds import MAX_SIZE
from heedful.models.gpt import GPT, GPTConfig
from heedful.nn.precision import with_precision
from heedful.search import Hypothesis, SearchConfig
from heedful.tasks.continuous_batching import run_jobs
from heedful.tasks.decoding import Decoder, Piece
from heedful.tasks.system import System
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

VOCAB, PROMPT = 50257, 16
Generate = Callable[[list[list[int]], int], list[list[int]]]  # prompts, new tokens -> the new tokens of each
HF_NAMES = (
    ("self_attention_residual.norm", "ln_1"),
    ("feed_forward_residual.norm", "ln_2"),
    ("self_attention.project", "attn.c_attn"),
    ("self_attention.out", "attn.c_proj"),
    ("feed_forward.rise", "mlp.c_fc"),
    ("feed_forward.fall", "mlp.c_proj"),
)


class TokensJob:
    """The continuation of a prompt of token ids."""

    watched, place = False, "this prompt"

    def __init__(self, prompt: list[int], length: int) -> None:
        self.prompt, self.length, self.tokens = prompt, length, list[int]()
        self.input_tokens, self.output_tokens = len(prompt), length
        self.config = SearchConfig(method="greedy").model_copy(update={"min_length": MAX_SIZE})

    def pieces(self) -> list[Piece]:
        return [Piece(0, self.prompt[:-1], [], "", start=self.prompt[-1], limit=self.length)]

    def progress(self, piece: int, tokens: list[int]) -> bool:
        return False

    def complete(self, piece: int, hypotheses: Sequence[Hypothesis] | None) -> list[Piece]:
        assert hypotheses is not None
        self.tokens = hypotheses[0].tokens
        return []

    def new_text(self, sample: int) -> str:
        return ""

    def prediction(self) -> list[int]:
        return self.tokens


def heedful(model: GPT, precision: str, device: torch.device) -> Generate:
    """Our continuous batching, as in `heed generate` and the server."""
    ready = with_precision(model, precision, device)
    tokenizer = small_tokenizer()
    system = System([ready], tokenizer, tokenizer, device, max_length=1024)
    decoder = Decoder(system, tokenizer.specials.end, tokenizer.specials.pad, ends_source=False)

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        return list(run_jobs(decoder, [TokensJob(prompt, length) for prompt in prompts]))

    return generate


def small_tokenizer() -> Tokenizer:
    """Only the special ids of a tokenizer are needed here."""
    return train_tokenizer(TokenizerConfig(kind="characters"), ["a"])


def hugging_face(model: GPT, precision: str, device: torch.device, cache: str) -> Generate:
    from transformers import GenerationConfig

    theirs = for_hugging_face(model).to(device, torch.bfloat16 if precision == "bf16" else torch.float32)

    @torch.inference_mode()
    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        given = torch.tensor(prompts, device=device)
        config = GenerationConfig(
            max_new_tokens=length, min_new_tokens=length, do_sample=False, pad_token_id=0, eos_token_id=0,
            cache_implementation=None if cache == "dynamic" else "static",
        )  # fmt: skip
        output = theirs.generate(given, attention_mask=torch.ones_like(given), generation_config=config)
        return [row[len(prompts[0]) :] for row in output.tolist()]

    return generate


def for_hugging_face(model: GPT) -> Any:
    """GPT2LMHeadModel with the same weights; its linear layers are stored transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB)).eval()
    ours = model.state_dict()
    weights = {
        "transformer.wte.weight": ours["embedding.target.weight"],
        "transformer.wpe.weight": ours["position.table.weight"],
    }
    weights |= {f"transformer.ln_f.{part}": ours[f"last.{part}"] for part in ("weight", "bias")}
    for layer in range(len(model.layers)):
        for own, name in HF_NAMES:
            for part in ("weight", "bias"):
                value = ours[f"layers.{layer}.{own}.{part}"]
                transposed = part == "weight" and value.dim() == 2
                weights[f"transformer.h.{layer}.{name}.{part}"] = value.t().contiguous() if transposed else value
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    theirs.load_state_dict(weights, strict=True)
    return theirs


def ctranslate2(model: GPT, precision: str) -> Generate:
    """CTranslate2 from the Hugging Face model; token i is written as the text "i"."""
    import ctranslate2 as ct2
    from ctranslate2.converters import TransformersConverter

    folder = Path(tempfile.mkdtemp())
    for_hugging_face(model).save_pretrained(folder / "hf")
    write_gpt2_tokenizer(folder / "hf")
    TransformersConverter(str(folder / "hf")).convert(
        str(folder / "ct2"), quantization=None if precision == "fp32" else precision
    )
    generator = ct2.Generator(
        str(folder / "ct2"), compute_type="float32" if precision == "fp32" else precision, intra_threads=2
    )

    def generate(prompts: list[list[int]], length: int) -> list[list[int]]:
        names = [[f"t{token}" for token in prompt] for prompt in prompts]
        results = generator.generate_batch(
            names, max_length=length, min_length=length, sampling_topk=1, include_prompt_in_result=False, end_token=["t0"]
        )
        return [[int(token[1:]) for token in result.sequences[0]] for result in results]

    return generate


def write_gpt2_tokenizer(folder: Path) -> None:
    """A vocabulary of 50,257 names: CTranslate2's converter reads the tokens from it."""
    vocabulary = {f"t{i}": i for i in range(VOCAB)}
    vocabulary["<|endoftext|>"] = vocabulary.pop(f"t{VOCAB - 1}")
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))


def measure(systems: dict[str, Generate], rows: int, length: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """Tokens per second of each system, medians of alternating rounds, and how many of its tokens equal ours."""
    generator = torch.Generator().manual_seed(rows)
    prompts = torch.randint(4, VOCAB, (rows, PROMPT), generator=generator).tolist()
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    outputs = {}
    for turn in range(rounds + 2):  # the first two compile, capture and warm up
        for name, generate in systems.items():
            started = time.perf_counter()
            outputs[name] = generate(prompts, length)
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - started)
    ours = outputs["heedful"]
    assert all(len(row) == length for row in ours)
    result = {}
    for name, times in seconds.items():
        same = sum(a == b for mine, theirs in zip(ours, outputs[name], strict=True) for a, b in zip(mine, theirs, strict=False))
        result[name] = {
            "tokens_per_second": rows * length / statistics.median(times),
            "seconds": times,
            "tokens_equal_to_ours": same / (rows * length),
        }
    return result


def copy_bandwidth() -> float:
    """Bytes per second that a large device-to-device copy reads and writes."""
    x = torch.empty(2**30, device="cuda", dtype=torch.uint8)
    y = torch.empty_like(x)
    y.copy_(x)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(50):
        y.copy_(x)
    torch.cuda.synchronize()
    return 50 * 2 * x.numel() / (time.perf_counter() - started)


def bytes_of_step(model: GPT, rows: int, length: int) -> int:
    """Weights, and keys and values of all rows at half of the length, in bf16. Of the input embeddings only `rows` are read."""
    weights = sum(parameter.numel() for parameter in model.parameters()) - model.config.max_positions * model.config.dim
    cache = rows * (PROMPT + length // 2) * len(model.layers) * 2 * model.config.dim
    return 2 * (weights + cache)


def measure_gpu(rounds: int, peers: Sequence[str], write: Callable[[dict[str, Any]], None]) -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = GPT(GPTConfig(), VOCAB, VOCAB).eval()
    systems = {"heedful": heedful(model, "bf16", device)}
    systems |= {f"hf {cache}": hugging_face(model, "bf16", device, cache) for cache in peers}
    bandwidth = copy_bandwidth()
    found: dict[str, Any] = {"bandwidth": bandwidth}
    for rows in (1, 64):
        result = measure(systems, rows, 512, rounds, device)
        ours = result["heedful"]["tokens_per_second"]
        limit = rows * bandwidth / bytes_of_step(model, rows, 512)
        ratios = {f"ratio_to_hf_{cache}": ours / result[f"hf {cache}"]["tokens_per_second"] for cache in peers}
        found[f"{rows} sequences"] = result | ratios | {"fraction_of_memory_limit": ours / limit}
        write(found)


def measure_cpu(rounds: int, write: Callable[[dict[str, Any]], None]) -> None:
    device = torch.device("cpu")
    torch.manual_seed(0)
    model = GPT(GPTConfig(), VOCAB, VOCAB).eval()
    systems = {
        "heedful": heedful(model, "fp32", device),
        "hf": hugging_face(model, "fp32", device, "dynamic"),
        "ctranslate2": ctranslate2(model, "fp32"),
        "heedful int8": heedful(model, "int8", device),
        "ctranslate2 int8": ctranslate2(model, "int8"),
    }
    result = measure(systems, 1, 64, rounds, device)
    speed = {name: one["tokens_per_second"] for name, one in result.items()}
    ratios = {
        "ratio_to_hf": speed["heedful"] / speed["hf"],
        "int8_ratio_to_ctranslate2": speed["heedful int8"] / speed["ctranslate2 int8"],
    }
    write({"threads": torch.get_num_threads(), "1 sequence": result} | ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cpu", choices=["gpu", "cpu"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=["static", "dynamic"], help="caches of Hugging Face on a GPU")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()

    def write(found: dict[str, Any]) -> None:
        given.output.write_text(json.dumps({"machine": machine_info(), given.parts: found}, indent=2) + "\n")
        print(json.dumps(found, indent=2), flush=True)

    if given.parts == "gpu":
        measure_gpu(given.rounds, given.peers, write)
    else:
        measure_cpu(given.rounds, write)


if __name__ == "__main__":
    main()
