// A table as a model reads it, for drawing: comma-separated with a header, or a JSON object with a list for each column.

export interface Table { names: string[]; columns: Record<string, number[]>; length: number }

/** The columns of numbers; null: the text is no such table, and the server says why. */
export function parseTable(text: string): Table | null {
  const columns: Record<string, number[]> = {};
  if (text.trimStart().startsWith("{")) {
    try {
      for (const [name, values] of Object.entries(JSON.parse(text))) if (Array.isArray(values)) columns[name] = values.map(Number);
    } catch {
      return null;
    }
  } else {
    const [header, ...rows] = text.trim().split(/\r?\n/).map((line) => line.split(",").map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
    header!.forEach((name, at) => { columns[name] = rows.map((row) => Number(row[at])); });
  }
  const names = Object.keys(columns).filter((name) => columns[name]!.length && columns[name]!.every(Number.isFinite));
  const length = names.length ? columns[names[0]!]!.length : 0;
  return length ? { names, columns, length } : null;
}
