// Data of the other sections: numbers, texts, tables, and nested objects.

const isRow = (one) => one !== null && typeof one === "object" && !Array.isArray(one);
const isPlain = (one) => one === null || typeof one !== "object";
const label = (name) => name.replaceAll("_", " ");

function format(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(format).join(", ");
  if (isRow(value)) return Object.entries(value).map(([key, one]) => `${label(key)} ${format(one)}`).join(", ");
  return String(value);
}

function cellOf(value) {
  return make("td", typeof value === "number" ? { class: "number" } : { dir: "auto" }, format(value));
}

function render(data, level = 4) {
  if (isPlain(data)) return [make("p", {}, format(data))];
  if (Array.isArray(data)) {
    if (data.length && data.every(isRow)) {
      const names = [...new Set(data.flatMap(Object.keys))];
      return [make("div", { class: "scroll" }, make("table", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, label(name)))),
        ...data.map((row) => make("tr", {}, ...names.map((name) => cellOf(row[name]))))))];
    }
    if (data.length && data.every(Array.isArray)) return [make("div", { class: "scroll" }, make("table", {}, ...data.map((row) => make("tr", {}, ...row.map(cellOf)))))];
    return [make("p", {}, format(data))];
  }
  const single = Object.entries(data).filter(([, value]) => isPlain(value) || (Array.isArray(value) && value.every(isPlain)));
  const parts = [];
  if (single.length) parts.push(make("dl", {}, ...single.flatMap(([name, value]) => [make("dt", {}, label(name)), make("dd", {}, format(value))])));
  for (const [name, value] of Object.entries(data)) {
    if (single.some(([other]) => other === name)) continue;
    parts.push(make(`h${Math.min(level, 6)}`, {}, label(name)), ...render(value, level + 1));
  }
  return parts;
}

function showMore() {
  byId("more").querySelectorAll("section").forEach((section, i) => {
    section.setAttribute("aria-label", section.querySelector("h2").textContent);
    const all = make("details", { class: "all" }, make("summary", {}, "All data"));
    all.addEventListener("toggle", () => { if (all.children.length === 1) all.append(...render(facts.sections[i])); });
    section.append(all);
  });
}

// A page with at least three sections starts with links to them.
function showContents() {
  const titles = [...document.querySelectorAll("main section h2")];
  if (titles.length < 3) return;
  titles.forEach((title, i) => { title.id ||= `section-${i}`; });
  byId("contents").append(...titles.map((title) => make("a", { href: `#${title.id}` }, title.textContent)));
  byId("contents").hidden = false;
}
