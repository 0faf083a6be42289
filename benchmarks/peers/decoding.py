"""Translating with a Hugging Face model: `generate` over batches sorted by length, from text to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from heedful.tasks.batches import source_tensors
from heedful.text.tokenizer import Tokenizer

ROWS = 250  # sentences per batch


def decode(
    model: nn.Module, tokenizer: Tokenizer, sources: Sequence[str], *, beam: int, penalty: float, extra: int = 50
) -> list[str]:
    """Translations in the order of the sources, each at most `extra` tokens longer than the longest source of its batch."""
    from transformers import GenerationConfig

    generating: Any = model
    specials, device = tokenizer.specials, next(model.parameters()).device
    model.eval()
    encoded = tokenizer.encode_many(list(sources))
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]), reverse=True)
    translations = [""] * len(encoded)
    for first in range(0, len(order), ROWS):
        chosen = order[first : first + ROWS]
        source, mask = source_tensors([encoded[i] for i in chosen], specials)
        attention_mask = torch.ones_like(source) if mask is None else mask.long()
        generation = GenerationConfig(
            num_beams=beam, length_penalty=penalty, max_new_tokens=source.shape[1] + extra, do_sample=False,
            pad_token_id=specials.pad, eos_token_id=specials.end, forced_eos_token_id=specials.end,
            decoder_start_token_id=specials.start, bad_words_ids=[[specials.pad], [specials.start]],
        )  # fmt: skip
        with torch.inference_mode():
            output = generating.generate(
                source.to(device), attention_mask=attention_mask.to(device), generation_config=generation
            )
        for i, text in zip(chosen, tokenizer.decode_many(output.tolist()), strict=True):  # (rows, time)
            translations[i] = text
    return translations
