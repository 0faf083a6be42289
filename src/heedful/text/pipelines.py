"""Normalizer, pre-tokenizer and decoder of each kind of tokenizer.

    characters   every character is a piece, including spaces
    words        runs of letters and digits, and single other characters; a joiner marks where there was no
                 space:                  (don't) -> (￭ don ￭'￭ t ￭)
    wordpiece    the same words, each cut into pieces; ## marks a piece that continues a word:
                                         (walking) -> (￭ walk ##ing ￭)
    spaces       words separated by white space only, for text that is already tokenized
    bpe, unigram runs of letters, of digits and of other characters; a bar marks a space, also at the start of the text:
                                         two men, 10 dogs -> ▁two ▁men , ▁10 ▁dogs
    bytes        the same over the bytes of UTF-8, with the space itself

A piece never mixes letters with other characters, so no text can be encoded as a special token such as <s>; in `spaces`,
whose pieces do, such a word is encoded as unknown.
The bar (U+2581) and the joiner (U+FFED) themselves are lost in the kinds that use them. A text that contains ## loses
nothing: # is a word of its own, and no word of `wordpiece` begins with two of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from heedful.text.specials import SPECIALS, UNK

BAR = "▁"
JOINER = "￭"
CONTINUATION = "##"
MAX_WORDPIECE = 96  # letters and digits in a word; with a joiner it is still below the library's 100, over which it is unknown

LETTERS = r"\p{L}\p{M}"
DIGITS = r"\p{N}"


def piece_pattern(space: str) -> Regex:
    """Match runs of letters, of digits and of other characters, each with the space before it, and runs of more spaces."""
    runs = [f"{space}?[{LETTERS}]+", f"{space}?[{DIGITS}]+", f"{space}?[^{space}{LETTERS}{DIGITS}]+"]
    return Regex("|".join([*runs, f"{space}+(?={space}[^{space}])", f"{space}+"]))


def chunk_pattern(space: str) -> str:
    """As `piece_pattern`, for the re module: splits at spaces only, so that every chunk consists of complete pieces."""
    return f"{space}?[^{space}]+|{space}+(?={space}[^{space}])|{space}+"


def characters(steps: list[normalizers.Normalizer]) -> Tokenizer:
    library = Tokenizer(models.BPE(unk_token=UNK))  # BPE without merges
    library.normalizer = normalizers.Sequence(steps)
    library.decoder = decoders.Fuse()
    return library


def joining_steps() -> list[normalizers.Normalizer]:
    """Separate words and signs; a joiner marks where there was no space."""
    inside = f"{LETTERS}{DIGITS}"
    before_sign = Regex(rf"(?<=\S)(?=[^\s{inside}])")
    after_sign = Regex(rf"(?<=[^\s{inside}{JOINER}])(?=[{inside}])")
    return [normalizers.Replace(before_sign, f" {JOINER}"), normalizers.Replace(after_sign, f"{JOINER} ")]


def words(steps: list[normalizers.Normalizer]) -> Tokenizer:
    library = Tokenizer(models.WordLevel(unk_token=UNK))
    library.normalizer = normalizers.Sequence([*steps, *joining_steps()])
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),  # a space between pieces, none before a joiner
            decoders.Fuse(),
            decoders.Replace(f"{JOINER} ", ""),
            decoders.Replace(JOINER, ""),  # a joiner at either end of the text
        ]
    )
    return library


def wordpiece(steps: list[normalizers.Normalizer]) -> Tokenizer:
    """Greedy longest match first (Schuster and Nakajima 2012; Wu et al. 2016), as in BERT (Devlin et al. 2019)."""
    inside = f"[{LETTERS}{DIGITS}]"
    within_long_word = Regex(rf"{inside}{{{MAX_WORDPIECE}}}\K(?={inside})")  # \K: the match begins here, so it is empty
    library = Tokenizer(models.WordPiece(unk_token=UNK, continuing_subword_prefix=CONTINUATION))
    library.normalizer = normalizers.Sequence([*steps, *joining_steps(), normalizers.Replace(within_long_word, f"{JOINER} ")])
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=CONTINUATION, cleanup=False),  # a space between words, none between their pieces
            decoders.Fuse(),
            decoders.Replace(Regex(f"^{CONTINUATION}"), ""),  # a text that begins inside a word
            decoders.Replace(f"{JOINER} ", ""),
            decoders.Replace(f" {JOINER}", ""),
            decoders.Replace(JOINER, ""),  # a joiner at either end of the text
        ]
    )
    return library


def spaces(steps: list[normalizers.Normalizer]) -> Tokenizer:
    special = "|".join(re.escape(token) for token in SPECIALS)
    library = Tokenizer(models.WordLevel(unk_token=UNK))
    library.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(rf"(?<!\S)({special})(?!\S)"), UNK)])
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.Sequence([decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse()])
    return library


def make_barred(model: models.Model, steps: list[normalizers.Normalizer]) -> Tokenizer:
    library = Tokenizer(model)
    library.normalizer = normalizers.Sequence([*steps, normalizers.Prepend(BAR), normalizers.Replace(" ", BAR)])
    library.pre_tokenizer = pre_tokenizers.Split(piece_pattern(BAR), "isolated")
    library.decoder = decoders.Sequence([decoders.Replace(BAR, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return library


def bpe(steps: list[normalizers.Normalizer]) -> Tokenizer:
    return make_barred(models.BPE(unk_token=UNK, fuse_unk=True), steps)


def unigram(steps: list[normalizers.Normalizer]) -> Tokenizer:
    return make_barred(models.Unigram(), steps)


def bytes_(steps: list[normalizers.Normalizer]) -> Tokenizer:
    library = Tokenizer(models.BPE(unk_token=UNK))
    library.normalizer = normalizers.Sequence([*steps, normalizers.Prepend(" ")])
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(piece_pattern(" "), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return library


PIPELINES: dict[str, Callable[[list[normalizers.Normalizer]], Tokenizer]] = {
    "characters": characters,
    "words": words,
    "wordpiece": wordpiece,
    "spaces": spaces,
    "bpe": bpe,
    "unigram": unigram,
    "bytes": bytes_,
}

SPACES = {"bpe": BAR, "unigram": BAR, "bytes": " "}  # the character that marks a space; the text is prefixed with one
