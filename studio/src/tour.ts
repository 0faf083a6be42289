// The steps of the tour: a view of the recorded model, what is selected in it, which part is marked, and what to see there.

export interface Step {
  view: string;
  title: string;
  text: string;
  see: string; // what to do or to notice
  mark: string; // selector of the marked part
  selection: Record<string, string | number>;
}

export const STEPS: Step[] = [
  {
    view: "work", mark: '[aria-label="Translation"]', selection: { step: 0 },
    title: "A Transformer translates",
    text: "The encoder encodes the source once. The decoder then predicts the translation token by token, each from the source and from the target tokens before it.",
    see: "The word order changes: “Italian girls” becomes “ragazze italiane”, and the pronoun “them” moves before the verb, as “li”.",
  },
  {
    view: "work", mark: '[aria-label="Alternatives"]', selection: { step: 4 },
    title: "Every step is a distribution",
    text: "At each position the model assigns a probability to every token of its vocabulary. Decoding chooses one of them and continues from there.",
    see: "Choose a target token: its alternatives are listed with their probabilities. Most of the probability is on one token where the model is certain.",
  },
  {
    view: "positions", mark: "[data-scheme]", selection: {},
    title: "Order enters as numbers",
    text: "Attention treats its input as a set. Positional encodings make it a sequence: each position has a vector, here of sines and cosines of different wavelengths, which is added to the embedding.",
    see: "Rows are positions. The similarity of two positions depends on their distance, so that a head can attend to the previous token.",
  },
  {
    view: "attention", mark: '[aria-label="One head"]', selection: { kind: "encoder", layer: 1, head: 0, by: "weights", step: 1 },
    title: "Self-attention in the encoder",
    text: "Each token is a query that is compared with the keys of all tokens. The weights of a row sum to 1; the output is the mean of the values with these weights.",
    see: "One row is one query. Move over the cells to read the weights. Here every token of the source may attend to every other.",
  },
  {
    view: "attention", mark: '[aria-label="One head"]', selection: { kind: "decoder", layer: 1, head: 0, by: "weights", step: 3 },
    title: "The causal mask",
    text: "The decoder predicts the next token and must not attend to it. A mask sets the scores of later positions to minus infinity before the softmax.",
    see: "All weights to the right of the diagonal are zero. During training all rows are computed at once, which recurrent networks cannot do.",
  },
  {
    view: "attention", mark: '[aria-label="One head"]', selection: { kind: "cross", layer: 1, head: 0, by: "weights", step: 1 },
    title: "Cross-attention: from target to source",
    text: "In each decoder layer, queries of the target attend to the output of the encoder. This is the only way from the source to the translation.",
    see: "The row of a target token belongs to the step that predicts it. Compare heads in the grid: some follow the words that are translated, others attend to the end token.",
  },
  {
    view: "attention", mark: '[aria-label="Word alignment"]', selection: { kind: "cross", layer: 1, head: 0, by: "weights", step: 1 },
    title: "Word alignment",
    text: "The mean of the cross-attention heads is a soft alignment of words. The training data has sentence pairs only, and no links between words.",
    see: "The links cross where the word order differs. Attention weights are not an explanation of the output, but often a usable alignment.",
  },
  {
    view: "inside", mark: '[aria-label="Query"], [aria-label="Head"]', selection: { kind: "cross", layer: 1, head: 0, step: 1 },
    title: "Inside one head",
    text: "Attention(Q, K, V) = softmax(QKᵀ / √d) V. Query, keys and values are projections of the hidden states; scores are dot products, divided by √d so that the softmax does not saturate.",
    see: "All numbers are those of the model. The page repeats the arithmetic of every stage and reports the difference.",
  },
  {
    view: "decoding", mark: '[aria-label="Search tree"], [aria-label="Beam search"]', selection: { step: 0 },
    title: "Decoding is a search",
    text: "The probability of a translation is the product of the probabilities of its tokens. Search keeps the best prefixes at each step and prunes the others.",
    see: "Step through the tree: solid branches were kept, dashed ones pruned. The number is the probability of the token.",
  },
  {
    view: "decoding", mark: '[aria-label="Logit lens"]', selection: { step: 2 },
    title: "From layer to layer",
    text: "The logit lens applies the output layer to the hidden states of every layer: what would be predicted if the model ended there?",
    see: "The first layer is often wrong or undecided; the last is the prediction. Darker cells have a higher probability.",
  },
  {
    view: "heads", mark: '[aria-label="Roles and importance"]', selection: { kind: "cross", layer: 1, head: 0 },
    title: "What each head does",
    text: "Measured on validation data: positions that a head attends to, its confidence, and the change of the loss when it is removed.",
    see: "A few heads matter; without most others the loss hardly changes. This is why heads can be pruned.",
  },
  {
    view: "cost", mark: ".tiles", selection: {},
    title: "What it costs",
    text: "Parameters, activations and optimizer state fill the memory; operations and bytes moved bound the time of training and of decoding.",
    see: "Compare the phases: a training step does far more arithmetic than the decoding of one token. Each card names the part that takes most of the time, and whether arithmetic or memory bounds it.",
  },
];
