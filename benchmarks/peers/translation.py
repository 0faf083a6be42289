"""A Hugging Face Marian model trained on a recipe's data for a given time, as an experienced user would.

    python -m peers.translation tatoeba-pt-en --seconds 240 --output peer.json

The data, the tokenizer and the size are the recipe's. Training uses Adam, label smoothing 0.1, gradient clipping at 1, batches
of similar length and bf16; the learning rate rises for a tenth of the time and then decays to 0. Of the weights with the best
validation loss and the last weights, those with the better validation BLEU are kept, the length penalty is selected on the
validation set, and the test set is translated once, with beam 5.

The time includes updates and validation, but not data loading and tokenizer training.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.data.batching import plan_epoch
from heedful.data.check import check_data
from heedful.data.prefetch import prefetch
from heedful.data.splits import splits_of
from heedful.data.store import JoinedStore
from heedful.evaluation.metrics import METRICS
from heedful.models.transformer import TransformerConfig
from heedful.runs.build import make_tokenizers
from heedful.runs.config import Run, read_run
from heedful.runs.recipes import find_recipe
from heedful.tasks.batches import Batch, collate
from heedful.tasks.translation.data import Examples, TranslationData, examples_of
from heedful.text.tokenizer import Tokenizer
from peers.decoding import decode
from peers.machine import machine_info
from peers.models import Size, loss_of, marian_model

WARMUP = 0.1  # of the time
VALIDATIONS = 10  # in the time
PENALTIES = (1.0, 0.6, 1.4)  # the first is used to select the weights
TUNING = 500  # validation sentences, or a few more, for each selection
SYNCHRONIZE = 20  # synchronize every N updates, so that the time is accurate


@dataclass(frozen=True)
class Options:
    seconds: float
    rate: float
    schedule: str
    dropout: float
    batch_tokens: int
    beam: int
    seed: int


def linear(elapsed: float) -> float:
    return min(elapsed / WARMUP, (1 - elapsed) / (1 - WARMUP))


def inverse_sqrt(elapsed: float) -> float:
    return min(elapsed / WARMUP, math.sqrt(WARMUP / max(elapsed, WARMUP)))


SCHEDULES: dict[str, Callable[[float], float]] = {"linear": linear, "inverse_sqrt": inverse_sqrt}


class Weights(NamedTuple):
    loss: float  # on the validation set
    state: dict[str, Tensor]


class Trained(NamedTuple):
    candidates: dict[str, Weights]  # best, last
    updates: int
    tokens: int  # real target tokens
    epochs: float
    seconds: float


def size_of(run: Run, vocab: int, dropout: float) -> Size:
    """The model size of the recipe."""
    model = run.model
    if not isinstance(model, TransformerConfig):
        raise SystemExit(f"the recipe has family {model.family!r}; expected 'transformer'")
    if not isinstance(model.heads, int) or (model.decoder_layers or model.layers) != model.layers:
        raise SystemExit("the peer needs equal numbers of encoder and decoder layers and one number of heads")
    return Size(model.dim, model.layers, model.heads, model.feed_forward, vocab, dropout)


def batches(store: JoinedStore, tokenizer: Tokenizer, options: Options, on_gpu: bool) -> Iterator[tuple[Batch, float]]:
    """Yield batches without end, each padded to its longest row, and the epochs completed after it."""
    epoch, lengths = 0, (store.source_lengths, store.target_lengths)
    while True:
        plan = plan_epoch(*lengths, budget=options.batch_tokens, seed=options.seed, epoch=epoch)
        for number, rows in enumerate(plan, start=1):
            sources, targets = ([side(i).tolist() for i in rows] for side in (store.source, store.target))
            batch = collate(sources, targets, tokenizer.specials, tokenizer.specials)
            yield batch.pin() if on_gpu else batch, epoch + number / len(plan)
        epoch += 1


class Peer:
    """A model and its loss functions."""

    def __init__(self, model: nn.Module, pad: int, device: torch.device) -> None:
        self.model, self.pad, self.device = model.to(device), pad, device

    def logits(self, batch: Batch) -> Tensor:
        """(rows, target time, vocab)"""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            mask = torch.ones_like(batch.source) if batch.source_mask is None else batch.source_mask.long()
            logits: Tensor = self.model(
                input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target_in, use_cache=False
            ).logits
        return logits

    def loss(self, batch: Batch) -> Tensor:
        batch = batch.to(self.device)
        return loss_of(self.logits(batch), batch.target_out, self.pad)

    @torch.no_grad()
    def validate(self, valid: Sequence[Batch]) -> float:
        """The loss per token without label smoothing."""
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64)
        for batch in valid:
            moved = batch.to(self.device)
            logits = self.logits(moved).float().flatten(0, 1)
            summed = nn.functional.cross_entropy(logits, moved.target_out.flatten(), ignore_index=self.pad, reduction="sum")
            total += summed.cpu()
        self.model.train()
        return float(total) / sum(batch.tokens for batch in valid)

    def copy(self, loss: float) -> Weights:
        return Weights(loss, {name: value.clone() for name, value in self.model.state_dict().items()})


def train(peer: Peer, feed: Iterator[tuple[Batch, float]], valid: Sequence[Batch], options: Options) -> Trained:
    """Train until the time limit."""
    on_gpu = peer.device.type == "cuda"
    optimizer = torch.optim.Adam(peer.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=on_gpu)
    schedule = SCHEDULES[options.schedule]
    peer.model.train()
    best: Weights | None = None
    started, updates, tokens, epochs, validations = time.monotonic(), 0, 0, 0.0, 0
    for batch, epochs in feed:
        elapsed = (time.monotonic() - started) / options.seconds
        if elapsed >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = options.rate * schedule(elapsed)
        loss = peer.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(peer.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        updates, tokens = updates + 1, tokens + batch.tokens
        if on_gpu and updates % SYNCHRONIZE == 0:
            torch.cuda.synchronize()
        if elapsed * VALIDATIONS >= validations + 1:
            validations = int(elapsed * VALIDATIONS)
            now = peer.validate(valid)
            print(f"update {updates}  epoch {epochs:.2f}  loss {loss.item():.3f}  valid {now:.4f}  {elapsed:.0%}", flush=True)
            if best is None or now < best.loss:
                best = peer.copy(now)
    last = peer.copy(peer.validate(valid))
    print(f"update {updates}  epoch {epochs:.2f}  valid {last.loss:.4f}  last", flush=True)
    candidates = {"last": last} if best is None or last.loss <= best.loss else {"best": best, "last": last}
    return Trained(candidates, updates, tokens, epochs, time.monotonic() - started)


class Choice(NamedTuple):
    bleu: float  # on validation sentences
    weights: str
    penalty: float


def choose(
    peer: Peer, trained: Trained, translate: Callable[[list[str], float], list[str]], valid: Examples
) -> tuple[Choice, list[Choice]]:
    """Load the weights with the best validation BLEU; return them with their length penalty, and all choices."""
    every = max(1, len(valid.sources) // TUNING)  # spread over the file, which may be sorted
    sources, references = valid.sources[::every], valid.references[::every]

    def score(name: str, penalty: float) -> Choice:
        peer.model.load_state_dict(trained.candidates[name].state)
        return Choice(METRICS["bleu"](translate(sources, penalty), references).value, name, penalty)

    first = [score(name, PENALTIES[0]) for name in trained.candidates]
    name = max(first).weights
    tried = [*first, *(score(name, penalty) for penalty in PENALTIES[1:])]
    chosen = max(tried)
    peer.model.load_state_dict(trained.candidates[chosen.weights].state)
    return chosen, tried


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", help="overrides of the recipe: model.dim=256 …")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=5e-4, help="peak learning rate")
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="linear")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--batch-tokens", type=int, default=4096, help="rows x longest row of either side")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    options = Options(**{name: getattr(args, name) for name in Options.__dataclass_fields__})
    run = read_run(find_recipe(args.recipe), args.overrides).config
    results = {"recipe": args.recipe, "overrides": args.overrides, **measure(run, options)}
    args.output.write_text(json.dumps(results, indent=1) + "\n")


def measure(run: Run, options: Options) -> dict[str, Any]:
    if not run.tokenizer.shared:
        raise SystemExit("the peer needs a shared vocabulary; expected tokenizer.shared = true")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, _ = make_tokenizers(run, Path(folder), TranslationData(run))
    corpora = TranslationData(run).prepare((tokenizer, tokenizer), check_data(run.data))
    assert isinstance(corpora.train, JoinedStore), "the peer reads whole stores"
    specials = tokenizer.specials
    model = marian_model(size_of(run, len(tokenizer), options.dropout), specials.pad, specials.start, specials.end)
    peer = Peer(model, specials.pad, device)
    with closing(prefetch(batches(corpora.train, tokenizer, options, device.type == "cuda"), 8)) as feed:
        trained = train(peer, feed, list(encoded(corpora.valid, tokenizer, options.batch_tokens)), options)

    def translate(sources: list[str], penalty: float) -> list[str]:
        return decode(model, tokenizer, sources, beam=options.beam, penalty=penalty, extra=run.search.max_extra)

    chosen, tried = choose(peer, trained, translate, corpora.valid)
    test = examples_of(splits_of(run.data).test, run.data.max_ratio)
    translations = translate(test.sources, chosen.penalty)
    scores, lowered = (
        {
            name: asdict(METRICS[name](translations, test.references, lowercase=lower, bootstrap=1000))
            for name in ("bleu", "chrf")
        }
        for lower in (None, True)
    )
    return {
        "system": "hf",
        "options": asdict(options),
        "scores": scores,
        "lowercased": lowered,
        "valid": {"bleu": chosen.bleu, "loss": trained.candidates[chosen.weights].loss},
        "tried": [one._asdict() for one in tried],
        "weights": chosen.weights,
        "length_penalty": chosen.penalty,
        "sentences": len(test.sources),
        "tokenizer": tokenizer.description,
        "tokenizer_sha256": tokenizer.fingerprint,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "updates": trained.updates,
        "target_tokens": trained.tokens,
        "epochs": round(trained.epochs, 2),
        "train_seconds": round(trained.seconds, 1),
        **machine_info("transformers"),
    }


def encoded(examples: Examples, tokenizer: Tokenizer, budget: int) -> Iterator[Batch]:
    """The validation pairs in batches of similar length."""
    rows = list(zip(*(tokenizer.encode_many(side) for side in examples), strict=True))
    rows.sort(key=lambda pair: max(map(len, pair)), reverse=True)
    while rows:
        count = max(1, budget // (max(map(len, rows[0])) + 1))
        sources, targets = zip(*rows[:count], strict=True)
        yield collate(sources, targets, tokenizer.specials, tokenizer.specials)
        rows = rows[count:]


if __name__ == "__main__":
    main()
