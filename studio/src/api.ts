// Requests, and the source of their replies: the server; for the model "tour", a file of recorded replies; in the page of a result
// that is opened without a server, the data of the page. Every number that the page shows comes from here. Replies are kept, so
// that a selection that was seen before answers at once.

import { answer, viewsOf, type Recorded } from "./recorded";

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
  inputs?: string[]; // names of the texts of an input; several are separated by tabs
  reads_text?: boolean; // false: an input is an image, a table, a graph or a history
  grid_world?: GridWorld | null; // of a run of decisions
}

/** Cells are named like squares of a chess board: b3 is the second column, third row. */
export interface GridWorld { size: number; walls: string[]; goals: Record<string, number> }

export interface ExampleInput { text: string; expected: string | null; name: string | null }

const embedded = document.getElementById("recorded");
/** The data of this page, where it is that of a result. */
export const report: Recorded | null = embedded ? JSON.parse(embedded.textContent!) : null;

const MAX_KEPT = 200;
const RETRY = 1000; // milliseconds between two attempts where the queue is full
const PATIENCE = 120_000; // milliseconds after which the error is shown
const kept = new Map<string, Promise<Json>>();
let tour: Promise<Recorded> | null = null;

export function loadTour(): Promise<Recorded> {
  if (report) return Promise.reject(new Error("This page has no tour."));
  tour ??= request("GET", "/studio/tour.json");
  return tour;
}

/** Whether the page has a view: with a server all but the results of a file, otherwise those that the data are enough for. */
export const offers = (view: string): boolean => (report ? viewsOf(report).includes(view) : view !== "results");

async function request(method: string, path: string, body?: Json): Promise<Json> {
  const headers: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  const key = sessionStorage.getItem("heedful-key");
  if (key) headers["Authorization"] = `Bearer ${key}`;
  let response: Response;
  const until = Date.now() + PATIENCE;
  for (;;) {
    try {
      response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch {
      throw new Error("the server does not answer; is `heed studio` still running?");
    }
    if (response.status !== 429 || Date.now() > until) break;
    await new Promise((resolve) => setTimeout(resolve, RETRY)); // other analyses of the model are running
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(messageOf(found) || `${response.status} ${response.statusText}`);
  return found;
}

export function messageOf(found: Json): string {
  return typeof found?.error === "string" ? found.error : (found?.error?.message ?? "");
}

export function get(path: string): Promise<Json> {
  if (!report) return request("GET", path);
  return path === "/api/models" ? Promise.resolve({ models: [report.model] }) : Promise.reject(new Error("This page has no server."));
}

/** Post something that changes the server; the reply is not kept. */
export const send = (path: string, body: Json): Promise<Json> => request("POST", path, body);

/** Post, and keep the reply. */
export function post(path: string, body: { model: string; [name: string]: Json }): Promise<Json> {
  const { model, ...rest } = body;
  const full = `${model} ${path} ${JSON.stringify(rest)}`;
  let reply = kept.get(full);
  if (!reply) {
    reply = model !== TOUR ? request("POST", path, body) : (report ? Promise.resolve(report) : loadTour()).then((found) => (found.live ? request("POST", path, { model: found.live, ...rest }) : answer(found, path, rest)));
    reply.catch(() => kept.delete(full));
    kept.set(full, reply);
    if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value!);
  }
  return reply;
}

export interface Examples { split: "validation" | "test"; inputs: ExampleInput[] }

/** Inputs from the data of a run, none where it is not on the machine of the server. A forecast is best tried on the last data. */
export async function examples(model: ModelInfo, count = 12): Promise<Examples> {
  const from = (split: string): Promise<ExampleInput[]> => post("/api/examples", { model: model.id, split, count }).then((found) => found.examples);
  const tested = model.task === "forecasting" ? await from("test") : [];
  return tested.length ? { split: "test", inputs: tested } : { split: "validation", inputs: await from("valid") };
}

export const inspect = (model: string, analysis: string, text: string | null, options: Json = {}): Promise<Json> =>
  post(`/api/inspect/${analysis}`, { model, ...(text === null ? {} : { text }), options });
