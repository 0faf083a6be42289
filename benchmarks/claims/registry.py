"""All claims by name. To add one, write a function in one of these modules and a line here."""

from __future__ import annotations

from claims import (
    Claim,
    agreeing,
    answering,
    captioning,
    chatting,
    deciding,
    documents,
    forecasting,
    language,
    layers,
    lengths,
    masking,
    motions,
    negating,
    refining,
    retrieving,
    structures,
    summarizing,
    tagging,
    translating,
)

CLAIMS: dict[str, Claim] = {
    "fixed-vector": Claim(
        "COPY of up to 6 symbols: 95% of unseen sentences exact; with the plain source, at 8 at most half as many as at 6, at "
        "10 at most 10%; the source reversed is at most a point worse at the trained lengths (for each of three seeds)",
        "Sutskever 2014",
        lengths.fixed_vector,
    ),
    "bahdanau-length": Claim(
        "COPY of up to 12 symbols: 95% exact at 6, and at 12 at most five points fewer; at 14 80%, where a fixed vector with "
        "as many parameters has at most 25% (for each of the seeds 4, 5, 6; seeds 1 to 3 selected the length 14)",
        "Bahdanau 2015",
        lengths.bahdanau,
    ),
    "attention-length": Claim(
        "COPY of up to 6 symbols, 95% exact: at 10 symbols local-m attention keeps 80%, where a fixed vector with as many "
        "parameters has at most 25% (for each of three seeds)",
        "Luong 2015",
        lengths.local_attention,
    ),
    "relative-length": Claim(
        "COPY of up to 6 symbols, 95% exact: at 10 symbols a Transformer with clipped relative positions keeps 80%, where a "
        "fixed vector with as many parameters has at most 25% (for each of three seeds)",
        "Shaw 2018",
        lengths.relative_positions,
    ),
    "bahdanau": Claim("DICT of 3 to 8 words: 95% of tokens right, AER at most 0.15", "Bahdanau 2015", translating.bahdanau),
    "luong": Claim("DICT: 95% of tokens right with each of four scores and three scopes", "Luong 2015", translating.luong),
    "posunk": Claim(
        "unseen names: 90% of <unk> replaced by the right one, with each of four families",
        "Luong 2015, Zhou 2016",
        refining.posunk,
    ),
    "convs2s": Claim("DICT: 95% of tokens right", "Gehring 2017", translating.convs2s),
    "bytenet": Claim("COPY of 3 to 8 symbols by characters: 95% exact", "Kalchbrenner 2016", translating.bytenet),
    "transformer": Claim("COPY and REVERSE of 3 to 8 symbols: 99% exact", "Vaswani 2017", translating.transformer),
    "many-to-one": Claim(
        "eight orders of a source have one translation: 95% of unseen sentences exact, 95% the same in all orders",
        "Portuguese word order",
        translating.many_orders,
    ),
    "ensemble": Claim(
        "the loss of an ensemble of two models is at most the mean of theirs; two copies equal the single model",
        "Sutskever 2014",
        refining.ensemble,
    ),
    "gnmt-rl": Claim(
        "DICT: refinement by GLEU raises the mean GLEU of samples, and token accuracy falls by at most a point",
        "Wu 2016",
        refining.gnmt_rl,
    ),
    "gpt1": Claim(
        "a pre-trained tiny GPT beats the same model from scratch by 10 points with 100 labels",
        "Radford 2018",
        language.gpt1,
    ),
    "gpt2-zero-shot": Claim(
        "a language model answers prompts it was not trained for, above chance", "Radford 2019", language.zero_shot
    ),
    "masked": Claim(
        "templates: a tiny BERT predicts hidden words 20 points better than the most frequent word, and 90% of next sentences",
        "Devlin 2019",
        masking.masked,
    ),
    "characters": Claim(
        "a small character model needs fewer bits than an order-2 n-gram, and > 80% of its generated words are words",
        "character language models",
        language.characters,
    ),
    "summary": Claim(
        "one stack of causal layers picks the tagged tokens of a source, >= 95% exact, also with reach L M L M L",
        "Liu 2018",
        summarizing.summary,
    ),
    "previous-class": Claim(
        "tag = class of the previous token: 99% of words right with attention and with an LSTM, chance for each word alone",
        "sequence tagging",
        tagging.previous,
    ),
    "agreement": Claim(
        "Italian verbs and adjectives in their citation form have to be inflected: the best head of each relation has its "
        "largest weight on the subject of a verb (on any word of a coordinated one) and on the noun of an adjective in 80%, "
        "for each of three seeds",
        "why several heads",
        agreeing.agree,
    ),
    "negation": Claim(
        'not terrible: 95% of labels right, a bag of words at most 75%, and the adjective attends most to "not" in 90%, '
        "for each of three seeds",
        "sentiment",
        negating.not_terrible,
    ),
    "key-word": Claim(
        "documents of five sentences with one key word: 95% of labels right, and it is the top word of the top sentence in "
        "90%, for each of three seeds",
        "Yang 2016",
        documents.key_word,
    ),
    "span": Claim(
        "where is the key? 95% of answers exact in unseen texts about three things, in a minute of one core",
        "Devlin 2019",
        answering.span,
    ),
    "paraphrase": Claim(
        "a question in words that are not stored: 90% of the right answers of 144 among the first three; a stored question has "
        "its own answer first",
        "retrieval chatbots",
        retrieving.paraphrase,
    ),
    "skip-thought": Claim(
        "the nearest sentence without a common word has the same topic in 90%, by an untrained encoder in at most 30%",
        "Kiros 2015",
        retrieving.skip_thought,
    ),
    "exchanges": Claim("fifty exchanges are learned by heart: 95% of the replies are exact", "Vinyals 2015", chatting.by_heart),
    "two-turns-back": Claim(
        "the answer is two turns back: 95% right with the history and with HRAN, chance with the last turn alone; the right "
        "utterance has the largest weight in 80% (means of three seeds)",
        "Xing 2018",
        chatting.two_turns_back_claim,
    ),
    "sines": Claim(
        "two sines with a trend and noise, one step ahead: squared error at most 10% of persistence for an encoder, a causal "
        "decoder and an encoder-decoder",
        "time-series Transformer",
        forecasting.sines,
    ),
    "brownian": Claim(
        "Brownian motion in three dimensions, one step ahead: squared error within 3% of the variance of a step, and not below "
        "it by 2 standard errors, for an encoder, a causal decoder and an encoder-decoder",
        "time-series Transformer",
        forecasting.brownian,
    ),
    "gaits": Claim(
        "five gaits of moving joints: 95% of the labels right for unseen motions, for motions five times as long as those of "
        "training, and from start positions a hundred times as far",
        "motion classification",
        motions.gaits,
    ),
    "captions": Claim(
        "scenes of one to three shapes whose combination of color, shape, number and relation is not in the training data: 95% "
        "of the captions exact, and in the mean of all heads the largest weight is on the object of a color or shape word in "
        "80%, for each of three seeds",
        "Xu 2015",
        captioning.describe_scenes,
    ),
    "desired-return": Claim(
        "grid world: the return reached grows with the return desired (six of them; order kept within 95% intervals, rank "
        "correlation at least 0.9), and at the best one, chosen on validation starts, its interval is above that of behavior "
        "cloning, for each of three seeds",
        "Chen 2021",
        deciding.desired_returns,
    ),
    "echo": Claim(
        "one script echoes the input 50 steps back with attention, and with a convolution iff its receptive field is > 50",
        "interchangeable layers",
        layers.echo,
    ),
    "set": Claim(
        "the largest of a set of 3 to 8 numbers: 95% of unseen sets right without positions, and another order changes "
        "no probability by more than 1e-6 (for each of three seeds)",
        "permutation invariance",
        structures.sets,
    ),
    "graph": Claim(
        "four groups of nodes: attention along edges is right 10 points more often than the same model without edges and a "
        "linear model of the features, and more often than label propagation (for each of three seeds)",
        "Velickovic 2018",
        structures.communities,
    ),
    "reachable": Claim(
        "whether a node is on the path of a mark: with L layers, 95% of the nodes at a distance of at most L are right, and at "
        "most 5% of those beyond; all nodes only with as many layers as the diameter",
        "one edge per layer",
        structures.reachable,
    ),
    "highway": Claim(
        "a hundred layers train as a highway network and with residual connections, and do not train without",
        "Srivastava 2015",
        layers.highway,
    ),
}
