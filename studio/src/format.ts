/** Numbers as Python's format shows them: fixed(0.25, 2) is f"{0.25:.2f}". */
export const fixed = (value: unknown, digits = 4): string => (typeof value === "number" ? value.toFixed(digits) : value == null ? "–" : String(value));

export const signed = (value: number, digits = 3): string => (value < 0 ? "" : "+") + value.toFixed(digits);

/** Up to four significant digits. */
export function short(value: unknown): string {
  if (typeof value !== "number") return value == null ? "–" : String(value);
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

/** 12345678 is 12.3 M. */
export function large(value: number): string {
  for (const [power, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) if (value >= power) return `${(value / power).toFixed(1)} ${unit}`;
  return value.toFixed(0);
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) (value /= 1024), at++;
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

/** Invisible characters that reorder text are replaced by their code point. */
export const visible = (text: string): string =>
  text.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (one) => `‹${one.charCodeAt(0).toString(16).toUpperCase()}›`).replace(/\n/g, "⏎");

/** A token as text: the mark of a word's beginning becomes a space, spaces are visible. */
export const shown = (token: string): string => visible(token.replace(/^▁/, "")) || "␣";

/** Whether a token has the mark of a word's beginning before other characters. */
export const marked = (token: string): boolean => token.length > 1 && token.startsWith("▁");

/** At most `most` characters of a token. */
export function clip(token: string, most: number): string {
  const characters = [...shown(token.slice(0, 4 * most + 4))];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
}

export const words = (name: string): string => name.replaceAll("_", " ");
