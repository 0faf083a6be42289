// Replies that lie in a file: the tour, and the page of a result that is opened without a server. A request is answered by the
// reply recorded for it, by the result of its analysis, or, for the attention of all heads, from the arrays of the file.

import type { Json, ModelInfo } from "./api";

export interface Recorded {
  model: ModelInfo;
  text: string;
  replies: Record<string, Json>; // by path and body
  live?: string; // while the tour is recorded: the model whose replies it will have
  subject?: string[]; // of a result: the text and its translation
  facts?: string[];
  selection?: Json; // what the views show first
  results?: { title: string; analysis: string; options: Json; shown: boolean; data: Json }[];
  attention?: { labels: string[][]; kinds: { name: string; layers: Layer[] }[] } | null;
  arrays?: [string, ...number[]][]; // coding and shape
  numbers?: string; // deflated and base64
}

interface Layer { layer: number; heads: number; queries: number; keys: number; weights: number; norms: number; rollout: number | null }

const SIZES = ["sentences"]; // options that decide how much is measured; a result says how much it was

/** The reply to a request; an error if it is not in the file. */
export async function answer(from: Recorded, path: string, body: Json): Promise<Json> {
  const exact = from.replies[`${path} ${JSON.stringify(body)}`];
  if (exact !== undefined) return exact;
  const sameText = body.text === undefined || body.text === from.text;
  if (sameText && path === "/api/attention" && from.attention && !body.words) return headsOf(from, body.kind, body.by ?? "weights");
  const analysis = path.replace(/^\/api\/inspect\//, "");
  const result = from.results?.find((one) => one.analysis === analysis && sameOptions(one.options, body.options ?? {}));
  if (sameText && result) return result.data;
  throw new Error(from.results ? "This is not part of the file." : "This is not part of the recorded tour. With a model of your own, everything is computed.");
}

function sameOptions(recorded: Json, asked: Json): boolean {
  const names = new Set([...Object.keys(recorded), ...Object.keys(asked)].filter((name) => !SIZES.includes(name)));
  return [...names].every((name) => JSON.stringify(recorded[name]) === JSON.stringify(asked[name]));
}

/** The views that the data of a file are enough for. */
export function viewsOf(from: Recorded): string[] {
  const replied = (part: string) => Object.keys(from.replies).some((name) => name.startsWith(part));
  const analyzed = (name: string) => from.results?.some((one) => one.analysis === name) ?? false;
  const tree = replied("/api/inspect/explain") && Object.keys(from.replies).some((name) => name.includes('"about":"tree"'));
  const offered: Record<string, boolean> = {
    results: from.results?.some((one) => one.shown) ?? false,
    work: replied("/api/predict"),
    attention: Boolean(from.attention?.kinds.length),
    decoding: analyzed("lens") || tree,
    inside: Object.keys(from.replies).some((name) => name.startsWith("/api/inspect/explain") && name.includes('"layer"')),
    heads: analyzed("heads"),
    positions: analyzed("positions"),
    cost: analyzed("cost"),
  };
  return Object.keys(offered).filter((name) => offered[name]);
}

const unpacked = new WeakMap<Recorded, Promise<Float64Array[]>>();

/** What POST /api/attention answers: the values of every head of a kind. */
async function headsOf(from: Recorded, kind: string, by: string): Promise<Json> {
  if (!unpacked.has(from)) unpacked.set(from, unpack(from.numbers ?? "", from.arrays ?? []));
  const arrays = await unpacked.get(from)!;
  const { labels, kinds } = from.attention!;
  const layers = kinds.find((one) => one.name === kind)?.layers ?? [];
  const used = by === "rollout" ? layers.filter((one) => one.rollout !== null) : layers;
  if (!used.length) throw new Error(layers.length ? `${kind} has no rollout, which is defined for self-attention` : `the model has no attention of kind ${kind}`);
  const [source, target] = [from.subject?.[0] ?? "", from.subject?.[1] ?? ""];
  const maps = used.map((one) => {
    const [queries, keys] = [labels[one.queries]!, labels[one.keys]!];
    const values = arrays[by === "rollout" ? one.rollout! : one.weights]!;
    const norms = by === "norms" ? arrays[one.norms]! : null; // (heads, 1, keys)
    const heads = by === "rollout" ? 1 : one.heads;
    const head = (at: number) => queries.map((_, row) => keys.map((_, column) => values[(at * queries.length + row) * keys.length + column]! * (norms?.[at * keys.length + column] ?? 1)));
    return { kind, layer: one.layer, queries, keys, values: Array.from({ length: heads }, (_, at) => head(at)) };
  });
  return { source, target, by, maps };
}

/** Arrays of `heedful.inspection.page.arrays`: bytes in planes, float32 or units of 1/10,000. */
async function unpack(text: string, shapes: [string, ...number[]][]): Promise<Float64Array[]> {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  let at = 0;
  return shapes.map(([coding, ...shape]) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const size = coding === "f32" ? 4 : 2;
    const joined = new Uint8Array(count * size);
    for (let plane = 0; plane < size; plane++) for (let index = 0; index < count; index++) joined[index * size + plane] = bytes[at++]!;
    return coding === "f32" ? Float64Array.from(new Float32Array(joined.buffer)) : Float64Array.from(new Uint16Array(joined.buffer), (code) => code / 10_000);
  });
}
