"""Training of a unigram vocabulary (Kudo 2018): pieces with log-probabilities that maximize the likelihood of the text.

The trainer of `tokenizers` is not used: it sums in the order of a hash table, so that the same text gives another
vocabulary every time, and it needed an eighth more pieces on Multi30k. SentencePiece, whose method this is, is trained on
the same counted pieces; the result is a model of `tokenizers` like any other.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from heedful.errors import DataError

THREADS = 16  # fixed: sums are computed per thread, so the result depends on their number
OWN_CHARACTERS = frozenset("\t\n\r\0\u2047\u2585")  # reserved or skipped by SentencePiece

Score = tuple[str, float]


def count_pieces(library: Tokenizer, lines: Iterable[str]) -> Counter[str]:
    """Count the pieces of the library's pre-tokenizer. Words between spaces are counted first, to save memory and to
    pre-tokenize each distinct word only once."""
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split(" "))
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        for piece, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(word)):
            pieces[piece] += count
    return pieces


def learn_unigram(counts: Counter[str], size: int) -> list[Score]:
    """Return at most `size` pieces, most likely first, including every character in `counts`."""
    alphabet = set().union(*counts)
    learnable = sorted((piece, count) for piece, count in counts.items() if OWN_CHARACTERS.isdisjoint(piece))
    if not learnable:
        raise DataError("the training text has only control characters; expected words")
    reserved = len(alphabet & OWN_CHARACTERS)
    file = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=(f"{piece}\t{count}" for piece, count in learnable),
        input_format="tsv",
        model_writer=file,
        vocab_size=size - reserved + 1,  # its own unknown token is removed below
        hard_vocab_limit=False,  # a small text has fewer pieces
        model_type="unigram",
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_by_unicode_script=False,
        split_by_number=False,
        max_sentence_length=2**30,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        num_threads=THREADS,
        minloglevel=2,
    )
    model = SentencePieceProcessor(model_proto=file.getvalue())
    # Rounded, because the library reads long decimals from its file inexactly.
    scores = {model.id_to_piece(id): round(model.get_score(id), 6) for id in range(1, len(model))}
    least = min(scores.values())
    scores |= dict.fromkeys(sorted(alphabet - scores.keys()), least - 1.0)
    return list(scores.items())
