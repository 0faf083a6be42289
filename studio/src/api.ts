// Requests to the server. Every number that the page shows comes from here; replies are kept, so that a selection that was seen
// before answers at once. The model "tour" is answered from a file of recorded replies.

export type Json = any;
export const TOUR = "tour";

export interface ModelInfo {
  id: string;
  task: string;
  command: string;
  languages: { source: string; target: string } | null;
  example: string;
  generates: boolean;
  reads_turns: boolean;
  translates: boolean;
  options: string[];
  attention: { kind: string; layers: { layer: number; heads: number }[] }[];
  analyses: string[];
}

interface Tour {
  model: ModelInfo;
  text: string;
  replies: Record<string, Json>;
}

const MAX_KEPT = 200;
const kept = new Map<string, Promise<Json>>();
let tour: Promise<Tour> | null = null;

export function loadTour(): Promise<Tour> {
  tour ??= request("GET", "/studio/tour.json");
  return tour;
}

async function request(method: string, path: string, body?: Json): Promise<Json> {
  const headers: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  const key = sessionStorage.getItem("heedful-key");
  if (key) headers["Authorization"] = `Bearer ${key}`;
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the server does not answer; is `heed studio` still running?");
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(messageOf(found) || `${response.status} ${response.statusText}`);
  return found;
}

export function messageOf(found: Json): string {
  return typeof found?.error === "string" ? found.error : (found?.error?.message ?? "");
}

export const get = (path: string): Promise<Json> => request("GET", path);

/** Post, and keep the reply. */
export function post(path: string, body: { model: string; [name: string]: Json }): Promise<Json> {
  const { model, ...rest } = body;
  const name = `${path} ${JSON.stringify(rest)}`;
  if (model === TOUR) return loadTour().then((found) => recorded(found, name));
  const full = `${model} ${name}`;
  let reply = kept.get(full);
  if (!reply) {
    reply = request("POST", path, body);
    reply.catch(() => kept.delete(full));
    kept.set(full, reply);
    if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value!);
  }
  return reply;
}

function recorded(found: Tour, name: string): Json {
  const reply = found.replies[name];
  if (reply === undefined) throw new Error("This is not part of the recorded tour. `heed demo` trains a model for which everything is computed.");
  return reply;
}

export const inspect = (model: string, analysis: string, text: string | null, options: Json = {}): Promise<Json> =>
  post(`/api/inspect/${analysis}`, { model, ...(text === null ? {} : { text }), options });

/** The pieces of a streamed completion, as they arrive. */
export async function* stream(path: string, body: Json, signal: AbortSignal): AsyncGenerator<string> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  if (!response.ok || !response.body) throw new Error(messageOf(await response.json().catch(() => ({}))) || response.statusText);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(messageOf(event));
      const choice = event.choices?.[0];
      const piece = choice?.delta?.content ?? choice?.text ?? "";
      if (piece) yield piece;
    }
  }
}
