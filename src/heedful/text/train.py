"""Tokenizer training. The same lines result in the same tokenizer, byte for byte.

No character of the text is dropped: if `vocab` is too small for the alphabet, an error states the size that is needed.
Only the kinds `words` and `spaces` drop rare words and encode them as <unk>. The kind `wordpiece` keeps every character
twice, at the beginning and inside of a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from heedful.errors import ConfigError, DataError
from heedful.text.library import LibraryCodec, add_tags
from heedful.text.long_lines import split_line
from heedful.text.long_words import remove_long_words
from heedful.text.normalize import describe_normalizing, normalizing_steps
from heedful.text.pipelines import BAR, CONTINUATION, JOINER, PIPELINES
from heedful.text.sentencepiece import SentencePieceCodec, normalization_of, read_model
from heedful.text.specials import SPECIALS, UNK
from heedful.text.tags import check_tags
from heedful.text.tokenizer import Header, Tokenizer, TokenizerConfig
from heedful.text.unigram import count_pieces, learn_unigram

Learner = Callable[[TokenizerConfig, Library, Iterable[str], int], Library]


def train_tokenizer(config: TokenizerConfig, lines: Iterable[str], tags: Sequence[str] = ()) -> Tokenizer:
    """Train a tokenizer of config.kind on `lines`; each tag becomes a token.
    A SentencePiece file has its own vocabulary: then no line is read."""
    check_tags(tags)
    if config.file is not None:
        model = read_model(config.file)
        return Tokenizer(Header(kind=config.kind, normalization=normalization_of(model)), SentencePieceCodec(model, tags))
    blank = PIPELINES[config.kind](normalizing_steps(config.normalize, config.lowercase))
    try:
        short = (piece for line in skip_blank(lines) for piece in split_line(line, keep_spaces=config.kind == "characters"))
        library = LEARNERS[config.kind](config, blank, short, config.vocab - len(tags))
    except UnicodeEncodeError as error:
        raise DataError(
            f"the training text contains {error.object[error.start]!r}, half of a surrogate pair; expected complete characters",
            hint="clean the text: it was probably truncated in the middle of a character",
        ) from error
    add_tags(library, config.kind, tags)
    normalization = describe_normalizing(config.normalize, config.lowercase)
    header = Header(kind=config.kind, normalization=normalization, dropout=config.dropout)
    return Tokenizer(header, LibraryCodec(config.kind, library))


def skip_blank(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are not blank; DataError at the end if there was none."""
    empty = True
    for line in lines:
        if line and not line.isspace():
            empty = False
            yield line
    if empty:
        raise DataError(
            "the training text is empty; expected lines to train a tokenizer on",
            hint="check the training files with: heed data check FILES",
        )


def learn_characters(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    alphabet: set[str] = set()
    for line in lines:
        alphabet.update(blank.normalizer.normalize_str(line))
    ids = {token: id for id, token in enumerate([*SPECIALS, *sorted(alphabet)])}
    blank.model = models.BPE(vocab=ids, merges=[], unk_token=UNK)
    blank.add_special_tokens(list(SPECIALS))
    return blank


def learn_words(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    check_vocab_size(config, size=size, needed=1, of="words")
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=config.min_frequency, special_tokens=list(SPECIALS), show_progress=False
    )
    blank.train_from_iterator(lines, trainer)
    check_not_empty(config, blank.get_vocab_size() - len(SPECIALS))
    return blank


def learn_spaces(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    """Count the words here: the library's trainer would give <unk>, which such a text may contain, two ids."""
    check_vocab_size(config, size=size, needed=1, of="words")
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(word for word, _ in blank.pre_tokenizer.pre_tokenize_str(blank.normalizer.normalize_str(line)))
    del counts[UNK]
    known = [word for word, count in counts.items() if count >= config.min_frequency]
    check_not_empty(config, len(known))
    frequent = sorted(known, key=lambda word: (-counts[word], word))[: size - len(SPECIALS)]
    blank.model = models.WordLevel({token: id for id, token in enumerate([*SPECIALS, *frequent])}, UNK)
    blank.add_special_tokens(list(SPECIALS))
    return blank


def check_not_empty(config: TokenizerConfig, words: int) -> None:
    if words == 0:
        raise DataError(
            f"no word of the training text occurs tokenizer.min_frequency = {config.min_frequency} times; expected some",
            hint="lower tokenizer.min_frequency, or give more text",
        )


def learn_merges(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    trainer = trainers.BpeTrainer(
        vocab_size=max(size, 0),
        min_frequency=config.min_frequency,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if config.kind == "bytes" else [],
        show_progress=False,
    )
    if config.normalize == "nfkc":  # makes spaces of other characters, so that words cannot be counted before it
        blank.train_from_iterator(remove_long_words(lines), trainer)
    else:
        learned = Library(blank.model)
        learned.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
        learned.train_from_iterator(repeat_words(count_exactly(blank, remove_long_words(lines))), trainer)
        blank.model = learned.model
        blank.add_special_tokens(list(SPECIALS))
    # The trainer keeps the entire alphabet even if that exceeds its size; then the vocabulary is the alphabet alone.
    check_vocab_size(config, size=size, needed=blank.get_vocab_size() - len(SPECIALS), of="characters")
    return blank


def count_exactly(library: Library, lines: Iterable[str]) -> Counter[str]:
    """Count the pieces of the library's pre-tokenizer: those of each distinct word between single spaces once, which is faster
    than all pieces of all lines. Where the number of spaces matters, a line is cut as a whole."""

    def cut(text: str) -> list[str]:
        return [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))]

    words: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for line in lines:
        parts = line.split(" ")
        if "" in parts or BAR in line:
            pieces.update(cut(line))
        else:
            words.update(parts)
    for word, count in words.items():
        for piece in cut(word):
            pieces[piece] += count
    return pieces


def learn_wordpieces(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    """Train on counted words, with the alphabet first: the library's trainer would number the characters in the order of
    a hash table, so that the same text gives another vocabulary every time."""
    counts = count_pieces(blank, lines)
    characters = sorted({JOINER}.union(*counts))
    alphabet = [*characters, *(CONTINUATION + character for character in characters)]
    check_vocab_size(config, size=size, needed=len(alphabet), of="characters at the beginning and inside of words")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=config.min_frequency,
        special_tokens=[*SPECIALS, *alphabet],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learned = Library(models.WordPiece(unk_token=UNK))
    learned.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learned.train_from_iterator(repeat_words(counts), trainer)
    blank.model = models.WordPiece(
        learned.get_vocab(with_added_tokens=False), unk_token=UNK, continuing_subword_prefix=CONTINUATION
    )
    blank.add_special_tokens(list(SPECIALS))
    return blank


def repeat_words(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield every word as often as it occurs, in lines of up to 1000 words."""
    for word, count in counts.items():
        for begin in range(0, count, 1000):
            yield f"{word} " * min(count - begin, 1000)


def learn_pieces(config: TokenizerConfig, blank: Library, lines: Iterable[str], size: int) -> Library:
    counts = count_pieces(blank, remove_long_words(lines))
    check_vocab_size(config, size=size, needed=len(set().union(*counts)), of="characters")
    specials = [(token, 0.0) for token in SPECIALS]
    pieces = learn_unigram(counts, size - len(SPECIALS))
    blank.model = models.Unigram([*specials, *pieces], SPECIALS.index(UNK), False)
    blank.add_special_tokens(list(SPECIALS))
    return blank


def check_vocab_size(config: TokenizerConfig, *, size: int, needed: int, of: str) -> None:
    """Raise unless `needed` pieces and the special tokens fit into `size`, the vocabulary size without tags."""
    tags = config.vocab - size
    total = needed + len(SPECIALS) + tags
    if total > config.vocab:
        raise ConfigError(
            f"tokenizer.vocab = {config.vocab} is too small: {needed} {of}, {len(SPECIALS)} special tokens "
            f"and {tags} tags need {total}",
            hint=f"set tokenizer.vocab to {total} or more; or use kind 'bytes', which needs only 256 bytes for all characters",
        )


LEARNERS: dict[str, Learner] = {
    "characters": learn_characters,
    "words": learn_words,
    "wordpiece": learn_wordpieces,
    "spaces": learn_spaces,
    "bpe": learn_merges,
    "unigram": learn_pieces,
    "bytes": learn_merges,
}
