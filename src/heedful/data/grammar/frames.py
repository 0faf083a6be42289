"""The frames: the order of the parts of a clause in English and in Italian, and the trees over them.

Each is the synchronous rule of one kind of clause, source first, in the notation of phrases.py. Italian has no "do" and may
drop the pronoun; the partner after `~` is the word that expresses it instead.
"""

from __future__ import annotations

from heedful.data.grammar.phrases import Frame

LEXICAL = Frame(
    "subject:nsubj polarity:neg adverb:advmod verb:root object:obj oblique tail",
    "subject:nsubj polarity:neg verb:root mai:advmod~polarity adverb:advmod object:obj oblique tail",
)
LEXICAL_QUESTION = Frame(
    "why:advmod do:aux subject:nsubj adverb:advmod verb:root object:obj oblique tail",
    "why:advmod subject:nsubj verb:root adverb:advmod object:obj oblique tail",
)
COPULA = Frame(
    "subject:nsubj be:cop polarity:neg adverb:advmod predicate:root tail",
    "subject:nsubj polarity:neg be:cop mai:advmod~polarity adverb:advmod predicate:root tail",
)
COPULA_QUESTION = Frame(
    "why:advmod be:cop subject:nsubj~be adverb:advmod predicate:root tail",
    "why:advmod subject:nsubj be:cop adverb:advmod predicate:root tail",
)
POSSESSION = Frame(  # I am hungry: ho fame
    "subject:nsubj~be be:cop polarity:neg adverb:advmod predicate:root tail",
    "subject:nsubj polarity:neg be:root mai:advmod~polarity adverb:advmod predicate:obj tail",
)
POSSESSION_QUESTION = Frame(
    "why:advmod be:cop subject:nsubj~be adverb:advmod predicate:root tail",
    "why:advmod subject:nsubj be:root adverb:advmod predicate:obj tail",
)
_MODAL_TARGET = "subject:nsubj polarity:neg~modal clitic:obj modal:aux verb:root object:obj oblique tail"
MODAL = Frame("subject:nsubj~modal modal:aux polarity:neg verb:root clitic:obj object:obj oblique tail", _MODAL_TARGET)
MODAL_QUESTION = Frame("modal:aux subject:nsubj~modal verb:root clitic:obj object:obj oblique tail", _MODAL_TARGET)
_WISH = "to:mark@infinitive infinitive:xcomp clitic:obj@infinitive object:obj@infinitive oblique@infinitive tail"
_WISHED = "clitic:obj@infinitive verb:root infinitive:xcomp object:obj@infinitive oblique@infinitive tail"
_WISH_TARGET = f"subject:nsubj polarity:neg {_WISHED}"
WISH = Frame(f"subject:nsubj polarity:neg verb:root {_WISH}", _WISH_TARGET)
WISH_QUESTION = Frame(f"do:aux subject:nsubj verb:root {_WISH}", _WISH_TARGET)
# I like it: it pleases me. A pronoun stands by the verb, a name before the negation.
_LIKING = "subject:nsubj polarity:neg verb:root to:mark@doing doing:xcomp object:obj"
_LIKING_QUESTION = "do:aux subject:nsubj verb:root to:mark@doing doing:xcomp object:obj"
_LIKING_TARGETS = {
    True: "polarity:neg subject:iobj verb:root doing:csubj object:nsubj",
    False: "subject:obl polarity:neg verb:root doing:csubj object:nsubj",
}
LIKING = {clitic: Frame(_LIKING, target) for clitic, target in _LIKING_TARGETS.items()}
LIKING_QUESTION = {clitic: Frame(_LIKING_QUESTION, target) for clitic, target in _LIKING_TARGETS.items()}
EXISTENCE = Frame("opening:root object:nsubj tail", "opening:root object:nsubj tail")
WHEREABOUTS = Frame("opening:root subject:nsubj", "opening:root subject:nsubj")
ASKED = Frame("asked do:aux subject:nsubj verb:root", "asked verb:root subject:nsubj")
COORDINATED = Frame("first:root joint:cc@second second:conj", "first:root joint:cc@second second:conj")
SUBORDINATED = Frame("first:root joint:mark@second second:advcl", "first:root joint:mark@second second:advcl")
