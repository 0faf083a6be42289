// The arithmetic of one attention head, repeated in the page on the tensors of an explanation (inspection/explaining/head_tensors.py):
//   q, k, v = x W + b    S = q K^T    S' = S / sqrt(d) + bias    A = softmax(S' masked)    out = A V + r    c = out W_O
// Every stage starts from the numbers of Python for the stage before, so that a difference belongs to one stage.

type Vector = number[];
type Matrix = Vector[];
type Masked = (number | null)[]; // null: masked

export interface Tensors {
  query: number;
  position: number | null;
  x: Vector | null;
  memory: Matrix | null;
  projections: Record<string, { weight: Matrix; bias: Vector }>;
  frequencies: Vector | null;
  score: "dot" | "additive" | "location";
  score_weight?: Matrix | null;
  score_value?: Vector | null;
  q: Vector;
  k: Matrix;
  v: Matrix;
  scores: Masked;
  divisor: number | null;
  bias: Vector | null;
  masked_scores: Masked;
  gaussian: Vector | null;
  weights: Vector;
  position_context: Vector | null;
  context: Vector;
  output_weight: Matrix | null;
  contribution: Vector | null;
}

export interface PageCheck {
  what: string;
  difference: number;
}

export const TOLERANCE = 1e-3;

const dot = (a: Vector, b: Vector): number => a.reduce((sum, one, at) => sum + one * b[at]!, 0);
const times = (a: Vector, weight: Matrix): Vector => weight[0]!.map((_, column) => a.reduce((sum, one, row) => sum + one * weight[row]![column]!, 0));
const plus = (a: Vector, b: Vector | null): Vector => (b ? a.map((one, at) => one + b[at]!) : a);

/** The largest difference; a value that is missing on one side only is an infinite one. */
function furthest(found: Masked, expected: Masked): number {
  if (found.length !== expected.length) return Infinity;
  return found.reduce<number>((most, value, at) => {
    const other = expected[at] ?? null;
    if (value === null || other === null) return value === other ? most : Infinity;
    return Math.max(most, Math.abs(value - other));
  }, 0);
}

export function softmax(scores: Masked): Vector {
  const most = Math.max(...scores.map((one) => one ?? -Infinity));
  const powers = scores.map((one) => (one === null ? 0 : Math.exp(one - most)));
  const sum = powers.reduce((total, one) => total + one, 0);
  return powers.map((one) => (sum ? one / sum : 0));
}

/** In bits. */
export const entropy = (weights: Vector): number => weights.reduce((sum, one) => (one > 0 ? sum - one * Math.log2(one) : sum), 0);

/** Rotary positions: each pair of dimensions is turned by the position times the frequency of the pair. */
function rotate(vector: Vector, position: number, frequencies: Vector): Vector {
  return vector.map((value, at) => {
    const angle = position * frequencies[at >> 1]!;
    const other = vector[at ^ 1]!;
    return at % 2 ? value * Math.cos(angle) + other * Math.sin(angle) : value * Math.cos(angle) - other * Math.sin(angle);
  });
}

function project(tensors: Tensors, name: string, inputs: Matrix, first: number): Matrix {
  const { weight, bias } = tensors.projections[name]!;
  const projected = inputs.map((one) => plus(times(one, weight), bias));
  return tensors.frequencies && name !== "value" ? projected.map((one, at) => rotate(one, first + at, tensors.frequencies!)) : projected;
}

function scoresOf({ score, score_weight, score_value, q, k }: Tensors): Masked {
  if (score === "dot") return k.map((one) => dot(q, one));
  const hidden = times(q, score_weight!);
  if (score === "additive") return k.map((one) => dot(plus(hidden, one).map(Math.tanh), score_value!));
  return k.map((_, at) => hidden[at] ?? null); // positions without a weight are masked
}

/** By the title of the stage, the steps that the page repeated. */
export function recompute(tensors: Tensors): Record<string, PageCheck[]> {
  const { x, memory, q, k, v, scores, divisor, bias, masked_scores: masked, gaussian, weights, context } = tensors;
  const checks: Record<string, PageCheck[]> = {};
  const add = (stage: string, what: string, difference: number) => (checks[stage] ??= []).push({ what, difference });
  if (x && memory && tensors.projections.query) {
    add("Query, keys and values", "x W_Q + b_Q", furthest(project(tensors, "query", [x], tensors.position ?? 0)[0]!, q));
    const first = k.length - memory.length; // keys before it were cached
    for (const [name, letter, own] of [["key", "K", k], ["value", "V", v]] as const)
      add("Query, keys and values", `x W_${letter} + b_${letter}`, furthest(project(tensors, name, memory, first).flat(), own.slice(first).flat()));
  }
  add("Scores", tensors.score === "dot" ? "q Kᵀ" : "score function", furthest(scoresOf(tensors), scores));
  if (divisor) {
    const scaled = plus(scores.map((one) => one! / divisor), bias);
    const stage = bias ? "Scale and positional bias" : "Scale";
    add(stage, bias ? "S / √d + bias" : "S / √d", furthest(scaled.map((one, at) => (masked[at] === null ? null : one)), masked));
  }
  const exponents = softmax(masked);
  add("Softmax", "softmax", furthest(gaussian ? exponents.map((one, at) => one * gaussian[at]!) : exponents, weights));
  add("Weighted sum", "Σ A v", furthest(plus(times(weights, v), tensors.position_context), context));
  if (tensors.output_weight && tensors.contribution) add("Output projection", "out W_O", furthest(times(context, tensors.output_weight), tensors.contribution));
  return checks;
}
