// What the records of a run say: its curves, whether it is training, and how long it will take.

import type { Json } from "./api";
import type { Line } from "./views/Curve.svelte";

const HIDDEN = ["step", "kind", "seconds", "time", "epoch"];
const FIRST = ["loss", "rate", "norm", "tokens_per_second", "examples_per_second", "skipped"];
export const TITLES: Record<string, string> = { rate: "learning rate", norm: "gradient norm", skipped: "skipped updates of the last 100" };
const FRESH = 30; // seconds after its last record that a run counts as training, at least

export interface Axes { time: boolean; smoothing: number }

/** Exponential moving average with bias correction; weight: of the past, from 0 to 1. */
export function smooth(points: [number, number][], weight: number): [number, number][] {
  let sum = 0, total = 0;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    sum = weight * sum + (1 - weight) * y;
    total = weight * total + (1 - weight);
    return [x, sum / total];
  });
}

/** The curves of every figure by its name: loss first, then the metrics of validation, then how training proceeds. */
export function figures(runs: { name: string; color: string; records: Json[] }[], axes: Axes): [string, Line[]][] {
  const found = new Map<string, Line[]>();
  for (const run of runs) {
    const curves = new Map<string, [number, number][]>();
    for (const record of run.records)
      for (const [name, value] of Object.entries(record))
        if (!HIDDEN.includes(name) && typeof value === "number") {
          const key = `${name} ${record.kind}`;
          if (!curves.has(key)) curves.set(key, []);
          curves.get(key)!.push([axes.time ? record.seconds : record.step, value]);
        }
    for (const [key, points] of curves) {
      const [name, kind] = key.split(" ") as [string, string];
      if (name === "skipped" && points.every(([, value]) => value === 0)) continue;
      const smoothed = kind === "train" && axes.smoothing > 0 && points.length > 2;
      const title = `${runs.length > 1 ? `${run.name} ` : ""}${kind}`;
      if (!found.has(name)) found.set(name, []);
      found.get(name)!.push({ name: title, points: smoothed ? smooth(points, axes.smoothing) : points, raw: smoothed ? points : [], color: run.color, dashed: kind !== "train" });
    }
  }
  const rank = (name: string) => (name === "loss" ? -1 : FIRST.indexOf(name)); // metrics of validation, -1 as well, keep their order after the loss
  return [...found].toSorted(([a], [b]) => rank(a) - rank(b) || Number(b === "loss") - Number(a === "loss"));
}

/** Seconds of an update, from the last records of training; null: too few. */
export function pace(records: Json[]): number | null {
  const trained = records.filter((one) => one.kind === "train").slice(-20);
  const [first, last] = [trained[0], trained.at(-1)];
  return first && last && last.step > first.step ? (last.seconds - first.seconds) / (last.step - first.step) : null;
}

export interface Progress { step: number; state: "training" | "finished" | "stopped" | "starting"; left: number | null }

/** Where a run stands; now: Unix time. */
export function progress(records: Json[], steps: number, now: number): Progress {
  const last = records.at(-1);
  if (!last) return { step: 0, state: "starting", left: null };
  const seconds = pace(records);
  const between = records.length > 1 ? last.time - records.at(-2)!.time : 0;
  const step = Math.max(...records.slice(-2).map((one) => one.step));
  const state = step >= steps ? "finished" : now - last.time < Math.max(FRESH, 4 * between) ? "training" : "stopped";
  return { step, state, left: state === "training" && seconds !== null ? seconds * (steps - step) : null };
}

/** 40 s, 4 min, 2.5 h, as the command line prints it. */
export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.max(seconds, 1).toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** 1:40, or 2:03:05 */
export function clock(seconds: number): string {
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${two(seconds % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}

/** The words of an output, and whether each is part of a longest common subsequence with the reference. */
export function compared(output: string, reference: string | null): { word: string; same: boolean }[] {
  const words = output.split(" "), other = (reference ?? "").split(" ");
  if (reference === null) return words.map((word) => ({ word, same: true }));
  const length = Array.from({ length: words.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i--) for (let j = other.length - 1; j >= 0; j--) length[i]![j] = words[i] === other[j] ? length[i + 1]![j + 1]! + 1 : Math.max(length[i + 1]![j]!, length[i]![j + 1]!);
  let j = 0;
  return words.map((word, i) => {
    while (j < other.length && length[i]![j + 1] === length[i]![j] && !(word === other[j] && length[i]![j]! > length[i + 1]![j]!)) j++;
    const same = j < other.length && word === other[j] && length[i]![j] === length[i + 1]![j + 1]! + 1;
    if (same) j++;
    return { word, same };
  });
}
