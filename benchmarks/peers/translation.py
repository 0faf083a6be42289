"""A Hugging Face Marian trained on a recipe's data for a given time, as one who knows that library would do it.

    python -m peers.translation tatoeba-pt-en --seconds 240 --output peer.json

The data, the tokenizer and the size are the recipe's. Around the model stand Adam, label smoothing 0.1, gradients cut at 1,
batches of like length and bf16; the learning rate rises for a tenth of the time and then falls to nothing at its end, so that
the whole of it is used. Of the weights with the best validation loss and the last ones those with the better validation BLEU
are kept, the length penalty is chosen on the validation set, and the test set is translated once, with beam 5.

The time counts updates and validation; reading the data and making the tokenizer come on top.
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

from heedful.build import examples_of, make_corpora, make_tokenizers
from heedful.config import Run, read_run
from heedful.data.batching import plan_epoch
from heedful.data.check import check_data
from heedful.data.prefetch import prefetch
from heedful.data.splits import splits_of
from heedful.data.store import JoinedStore
from heedful.evaluation.metrics import METRICS
from heedful.models.transformer import TransformerConfig
from heedful.recipe_files import find_recipe
from heedful.tasks.batches import Batch, collate
from heedful.tasks.evaluate_translations import Examples
from heedful.text.tokenizer import Tokenizer
from peers.decoding import decode
from peers.machine import about_here
from peers.models import Size, loss_of, marian_model

WARMUP = 0.1  # of the time
VALIDATIONS = 10  # in the time
PENALTIES = (1.0, 0.6, 1.4)  # the first is used to choose the weights
TUNING = 500  # validation sentences, or a few more, translated for each choice
SYNCHRONIZE = 20  # updates that may be under way at once, so that the clock tells the truth


@dataclass(frozen=True)
class Options:
    seconds: float
    rate: float
    schedule: str
    dropout: float
    batch_tokens: int
    beam: int
    seed: int


def linear(gone: float) -> float:
    return min(gone / WARMUP, (1 - gone) / (1 - WARMUP))


def inverse_sqrt(gone: float) -> float:
    return min(gone / WARMUP, math.sqrt(WARMUP / max(gone, WARMUP)))


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
    """The recipe's size in Marian's terms."""
    model = run.model
    if not isinstance(model, TransformerConfig):
        raise SystemExit(f"the peer is a transformer, the recipe a {model.family}")
    if not isinstance(model.heads, int) or (model.decoder_layers or model.layers) != model.layers:
        raise SystemExit("the peer has as many layers on both sides and one number of heads")
    return Size(model.dim, model.layers, model.heads, model.feed_forward, vocab, dropout)


def batches(store: JoinedStore, tokenizer: Tokenizer, options: Options, on_gpu: bool) -> Iterator[tuple[Batch, float]]:
    """Batches without end, each padded to its own longest row, and how many epochs are gone after it."""
    epoch, lengths = 0, (store.source_lengths, store.target_lengths)
    while True:
        plan = plan_epoch(*lengths, budget=options.batch_tokens, seed=options.seed, epoch=epoch)
        for place, rows in enumerate(plan, start=1):
            sources, targets = ([side(i).tolist() for i in rows] for side in (store.source, store.target))
            batch = collate(sources, targets, tokenizer.specials, tokenizer.specials)
            yield batch.pin() if on_gpu else batch, epoch + place / len(plan)
        epoch += 1


class Peer:
    """The model with what turns it into losses."""

    def __init__(self, model: nn.Module, pad: int, device: torch.device) -> None:
        self.model, self.pad, self.device = model.to(device), pad, device

    def logits(self, batch: Batch) -> Tensor:
        """(rows, target time, vocab)"""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            mask = torch.ones_like(batch.source) if batch.source_mask is None else batch.source_mask.long()
            found: Tensor = self.model(
                input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target_in, use_cache=False
            ).logits
        return found

    def loss(self, batch: Batch) -> Tensor:
        batch = batch.to(self.device)
        return loss_of(self.logits(batch), batch.target_out, self.pad)

    @torch.no_grad()
    def validate(self, valid: Sequence[Batch]) -> float:
        """The plain loss of a token."""
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
    """Updates until the time is over."""
    on_gpu = peer.device.type == "cuda"
    optimizer = torch.optim.Adam(peer.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=on_gpu)
    rise_and_fall = SCHEDULES[options.schedule]
    peer.model.train()
    best: Weights | None = None
    began, updates, tokens, epochs, judged = time.monotonic(), 0, 0, 0.0, 0
    for batch, epochs in feed:
        gone = (time.monotonic() - began) / options.seconds
        if gone >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = options.rate * rise_and_fall(gone)
        loss = peer.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(peer.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        updates, tokens = updates + 1, tokens + batch.tokens
        if on_gpu and updates % SYNCHRONIZE == 0:
            torch.cuda.synchronize()
        if gone * VALIDATIONS >= judged + 1:
            judged = int(gone * VALIDATIONS)
            now = peer.validate(valid)
            print(f"update {updates}  epoch {epochs:.2f}  loss {loss.item():.3f}  valid {now:.4f}  {gone:.0%}", flush=True)
            if best is None or now < best.loss:
                best = peer.copy(now)
    last = peer.copy(peer.validate(valid))
    print(f"update {updates}  epoch {epochs:.2f}  valid {last.loss:.4f}  last", flush=True)
    candidates = {"last": last} if best is None or last.loss <= best.loss else {"best": best, "last": last}
    return Trained(candidates, updates, tokens, epochs, time.monotonic() - began)


class Choice(NamedTuple):
    bleu: float  # on the validation sentences that choices are made by
    weights: str
    penalty: float


def choose(
    peer: Peer, trained: Trained, translate: Callable[[list[str], float], list[str]], valid: Examples
) -> tuple[Choice, list[Choice]]:
    """The weights and the length penalty with the best validation BLEU, loaded; and all that were tried."""
    every = max(1, len(valid.sources) // TUNING)  # from the whole file: some are in alphabetical order
    sources, references = valid.sources[::every], valid.references[::every]

    def judge(name: str, penalty: float) -> Choice:
        peer.model.load_state_dict(trained.candidates[name].state)
        return Choice(METRICS["bleu"](translate(sources, penalty), references).value, name, penalty)

    first = [judge(name, PENALTIES[0]) for name in trained.candidates]
    name = max(first).weights
    tried = [*first, *(judge(name, penalty) for penalty in PENALTIES[1:])]
    chosen = max(tried)
    peer.model.load_state_dict(trained.candidates[chosen.weights].state)
    return chosen, tried


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", help="of the recipe: model.dim=256 …")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=5e-4, help="the highest learning rate")
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="linear")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--batch-tokens", type=int, default=4096, help="rows x longest of either side")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    options = Options(**{name: getattr(given, name) for name in Options.__dataclass_fields__})
    run = read_run(find_recipe(given.recipe), given.overrides).config
    found = {"recipe": given.recipe, "overrides": given.overrides, **measure(run, options)}
    given.output.write_text(json.dumps(found, indent=1) + "\n")


def measure(run: Run, options: Options) -> dict[str, Any]:
    if not run.tokenizer.shared:
        raise SystemExit("the peer has one vocabulary for both sides")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, _ = make_tokenizers(run, Path(folder))
    corpora = make_corpora(run, (tokenizer, tokenizer), check_data(run.data))
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
        **about_here("transformers"),
    }


def encoded(examples: Examples, tokenizer: Tokenizer, budget: int) -> Iterator[Batch]:
    """The validation pairs as batches of like length."""
    rows = list(zip(*(tokenizer.encode_many(side) for side in examples), strict=True))
    rows.sort(key=lambda pair: max(map(len, pair)), reverse=True)
    while rows:
        count = max(1, budget // (max(map(len, rows[0])) + 1))
        sources, targets = zip(*rows[:count], strict=True)
        yield collate(sources, targets, tokenizer.specials, tokenizer.specials)
        rows = rows[count:]


if __name__ == "__main__":
    main()
