// The selection that all views share, kept in the address: #/attention?model=demo&text=…&kind=cross&layer=0&head=1&step=2

export const VIEWS = [
  ["results", "Results"],
  ["work", "Work"],
  ["attention", "Attention"],
  ["decoding", "Decoding"],
  ["inside", "Inside a head"],
  ["heads", "Heads"],
  ["positions", "Positions"],
  ["cost", "Cost"],
  ["training", "Training"],
  ["tour", "Tour"],
] as const;

export const selection = $state({
  view: "work",
  model: "",
  text: "",
  kind: "",
  layer: 0,
  head: 0,
  step: 0,
  tour: 0,
  by: "weights",
  mode: "", // of a form of Work: which heads, or whether the last rows are forecast
  shown: "", // what is chosen there: numbers with commas between them
  runs: "",
  removed: "", // names of heads, with commas between them
});

/** Light or dark; canvases read it to draw again. */
export const appearance = $state({ theme: "light" });

export function setTheme(theme: string): void {
  document.documentElement.dataset.theme = theme; // before the effects that read the colors
  appearance.theme = theme;
}

const LONGEST = 20_000; // characters of an input in the address
const NUMBERS = ["layer", "head", "step", "tour"] as const;
const TEXTS = ["model", "text", "kind", "by", "mode", "shown", "runs", "removed"] as const;

export function readHash(hash: string = location.hash): void {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  if (VIEWS.some(([name]) => name === path)) selection.view = path!;
  for (const name of TEXTS) if (given.has(name)) selection[name] = given.get(name)!;
  for (const name of NUMBERS) {
    const value = Number(given.get(name)); // 0 is not written
    selection[name] = Number.isInteger(value) && value >= 0 ? value : 0;
  }
  for (const name of ["mode", "shown", "removed"] as const) selection[name] = given.get(name) ?? "";
}

/** The address of a view with the selection, some of it changed; a long input, such as a large table, is not part of it. */
export function hashOf(view: string = selection.view, changes: Partial<typeof selection> = {}): string {
  const query = new URLSearchParams();
  const given = { ...selection, ...changes };
  for (const name of TEXTS) if (given[name] && given[name].length <= LONGEST) query.set(name, given[name]);
  for (const name of NUMBERS) if (given[name]) query.set(name, String(given[name]));
  return `#/${view}${query.size ? `?${query}` : ""}`;
}

export function select(changes: Partial<typeof selection>): void {
  Object.assign(selection, changes);
}
