"""Text to ids and back: special tokens, normalising, tokenizers. No torch."""

from heedful.text.learning import train_tokenizer
from heedful.text.specials import END, PAD, START, UNK, Specials
from heedful.text.tokenizer import Tokenizer, TokenizerConfig

__all__ = ["END", "PAD", "START", "UNK", "Specials", "Tokenizer", "TokenizerConfig", "train_tokenizer"]
