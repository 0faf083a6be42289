"""Tokenizers, special tokens and text normalization. No torch."""

from heedful.text.specials import END, MASK, PAD, START, UNK, Specials
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

__all__ = ["END", "MASK", "PAD", "START", "UNK", "Specials", "Tokenizer", "TokenizerConfig", "train_tokenizer"]
