"""The built-in corpus: a synchronous grammar that generates English sentences with their Italian translation.

    generate("train", 20_000)          sentences of a split: distinct, reproducible, any number
    translate_exactly("I am trendy")   the only reference of a source, or None
    count_pairs(), EXAMPLES, LABELS

Every source has exactly one reference, by these rules.

Persons       "I" and "you" are men; "you" is one friend, tu. "We" and "they" are men or a mixed group, so masculine. "You
              two" and "you and Anna" are voi, "Anna and I" is "io e Anna". Nouns have the gender of the lexicon: a teacher
              is a man, a nurse is a woman.
Pronouns      A subject pronoun is overt before essere in statements ("Io sono alla moda", "Lei non è stanca") and nowhere
              else: "Faccio la doccia", "Ho fame", "Sei stanco?". An object pronoun precedes the first finite verb
              ("L'aspetto", "Ti voglio vedere"); lo and la lose their vowel before another, the others do not.
Articles      il, lo, l', i, gli, la, le and un, uno, una, un' by the sound that follows; a, di, da, in and su contract with
              the definite article, con does not. A bare noun stays bare ("Mangio pane") except after "like" and "prefer",
              where it is generic ("Mi piace il pane"). A possessive has an article, except one relative without
              adjective: mia madre, la mia vecchia madre, la loro madre. Quest' loses its vowel in the singular before another.
Adjectives    follow the noun, except bello, buono, grande, piccolo, nuovo, vecchio, giovane, ottimo and strano, which go before
              it. Bello is inflected like quello; buon is used where un would be; grande and buona are never shortened.
Verbs         English present is Italian present. "Don't" is non, "never" is non … mai, always and often follow the verb,
              "do" of a question is not translated and the order stays, save after where, when and what ("Dove lavora Anna?").
              "Can", "must", "want" are potere, dovere, volere; "like" is piacere ("Ad Anna piacciono i gatti").
Euphony       ad before a, ed before e, only there.

Text          Words are separated by one space. A statement ends without a full stop; a question mark belongs to the last
              word. An elided word is one word with the next ("l'amico"), which gives it its label.
Alignment     pairs (source word, target word) over these words. A word without a counterpart is aligned with the word that
              expresses it: the dropped pronoun and "do" with the verb, "to" with the infinitive; so every word is aligned.
Trees         heads and labels after Universal Dependencies, somewhat simplified: "neg" (not, don't, never, non), "prt" (wait
              *for*), "poss"; a contracted preposition is "case"; "there is" and "where is" have the verb as root.

Splits        by SHA-256 of the source: 90 % train, 5 % valid, 5 % test. Both EXAMPLES are in train.
Order         Short sentences come first, because their families are small and drawn as often as the large ones: the more
              sentences are generated, the longer they get.
"""

from heedful.data.generated_split import Split, split_of
from heedful.data.grammar.corpus import (
    EXAMPLES,
    LABELS,
    SPLITS,
    Sentence,
    count_pairs,
    generate,
    translate_exactly,
)

__all__ = ["EXAMPLES", "LABELS", "SPLITS", "Sentence", "Split", "count_pairs", "generate", "split_of", "translate_exactly"]
