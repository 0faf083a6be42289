// The arithmetic of attention, repeated in the page on the numbers of the stages: scale, softmax and weighted sum. The page shows
// the difference from the numbers of Python.
import type { Json } from "./api";

export interface PageCheck {
  what: string;
  difference: number;
}

const numeric = (line: unknown[]): number[] => line.map((cell) => (cell === "-inf" ? -Infinity : typeof cell === "number" ? cell : NaN));
const furthest = (found: number[], expected: number[]): number =>
  Math.max(0, ...found.map((value, at) => Math.abs(value - expected[at]!)).filter((one) => !Number.isNaN(one)));

export function softmax(scores: number[]): number[] {
  const most = Math.max(...scores);
  const powers = scores.map((one) => Math.exp(one - most));
  const sum = powers.reduce((total, one) => total + one, 0);
  return powers.map((one) => one / sum);
}

/** For each stage, the steps that can be repeated from the numbers shown. */
export function recompute(stages: Json[]): PageCheck[][] {
  const find = (title: string) => stages.findIndex((one) => one.title === title);
  const first = (title: string) => stages[find(title)]?.matrices[0];
  const checks: PageCheck[][] = stages.map(() => []);
  const [query, keys, values] = stages[find("Query, keys and values")]?.matrices ?? [];
  const size = Number(/\((\d+)\)/.exec(query?.name ?? "")?.[1]);
  const scores = first("Scores"), scaled = first("Scale"), weights = first("Softmax");
  if (query && keys && scores && query.columns.length === size) {
    const q = numeric(query.cells[0]);
    const found = keys.cells.map((key: unknown[]) => numeric(key).reduce((sum, one, at) => sum + one * q[at]!, 0));
    checks[find("Scores")]!.push({ what: "q Kᵀ", difference: furthest(found, numeric(scores.cells[0])) });
  }
  if (scores && scaled && size) {
    const found = numeric(scores.cells[0]).map((one) => one / Math.sqrt(size));
    checks[find("Scale")]!.push({ what: "S / √d", difference: furthest(found, numeric(scaled.cells[0])) });
  }
  const at = find("Softmax");
  if (weights && at > 0) {
    const logits = numeric(stages[at - 1].matrices[0].cells[0]);
    const found = softmax(logits.slice(0, weights.columns.length));
    checks[at]!.push({ what: "softmax", difference: furthest(found, numeric(weights.cells[0])) });
  }
  const out = stages[find("Weighted sum")]?.matrices.find((one: Json) => one.name.startsWith("out"));
  if (weights && values && out) {
    const a = numeric(weights.cells[0]);
    const found = values.columns.map((_: string, column: number) => values.cells.reduce((sum: number, line: unknown[], row: number) => sum + a[row]! * numeric(line)[column]!, 0));
    checks[find("Weighted sum")]!.push({ what: "Σ A v", difference: furthest(found, numeric(out.cells[0])) });
  }
  return checks;
}
