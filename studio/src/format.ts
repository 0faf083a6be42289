/** Numbers as Python's format shows them: fixed(0.25, 2) is f"{0.25:.2f}". */
export const fixed = (value: unknown, digits = 4): string => (typeof value === "number" ? value.toFixed(digits) : value == null ? "–" : String(value));

export const signed = (value: number, digits = 3): string => (value < 0 ? "" : "+") + value.toFixed(digits);

/** Up to four significant digits. */
export function short(value: unknown): string {
  if (typeof value !== "number") return value == null ? "–" : String(value);
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) (value /= 1024), at++;
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

/** A token as text: the mark of a word's beginning becomes a space, spaces are visible. */
export const shown = (token: string): string => token.replace(/^▁/, "").replace(/\n/g, "⏎") || "␣";

export const words = (name: string): string => name.replaceAll("_", " ");
