// What other parts found: numbers, texts, tables of rows, and parts of parts.

const isRow = (one) => one !== null && typeof one === "object" && !Array.isArray(one);
const isPlain = (one) => one === null || typeof one !== "object";
const tidy = (name) => name.replaceAll("_", " ");

function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(written).join(", ");
  if (isRow(value)) return Object.entries(value).map(([key, one]) => `${tidy(key)} ${written(one)}`).join(", ");
  return String(value);
}

function cellOf(value) {
  return make("td", typeof value === "number" ? { class: "number" } : { dir: "auto" }, written(value));
}

function rendered(found, level = 4) {
  if (isPlain(found)) return [make("p", {}, written(found))];
  if (Array.isArray(found)) {
    if (found.length && found.every(isRow)) {
      const names = [...new Set(found.flatMap(Object.keys))];
      return [make("div", { class: "scroll" }, make("table", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, tidy(name)))),
        ...found.map((row) => make("tr", {}, ...names.map((name) => cellOf(row[name]))))))];
    }
    if (found.length && found.every(Array.isArray)) return [make("div", { class: "scroll" }, make("table", {}, ...found.map((row) => make("tr", {}, ...row.map(cellOf)))))];
    return [make("p", {}, written(found))];
  }
  const single = Object.entries(found).filter(([, value]) => isPlain(value) || (Array.isArray(value) && value.every(isPlain)));
  const parts = [];
  if (single.length) parts.push(make("dl", {}, ...single.flatMap(([name, value]) => [make("dt", {}, tidy(name)), make("dd", {}, written(value))])));
  for (const [name, value] of Object.entries(found)) {
    if (single.some(([other]) => other === name)) continue;
    parts.push(make(`h${Math.min(level, 6)}`, {}, tidy(name)), ...rendered(value, level + 1));
  }
  return parts;
}

function showMore() {
  byId("more").querySelectorAll("section").forEach((section, i) => {
    section.setAttribute("aria-label", section.querySelector("h2").textContent);
    const all = make("details", { class: "all" }, make("summary", {}, "All of its data"));
    all.addEventListener("toggle", () => { if (all.children.length === 1) all.append(...rendered(facts.sections[i])); });
    section.append(all);
  });
}

// Where a page has several sections, links to them stand at its top.
function showContents() {
  const titles = [...document.querySelectorAll("main section h2")];
  if (titles.length < 3) return;
  titles.forEach((title, i) => { title.id ||= `section-${i}`; });
  byId("contents").append(...titles.map((title) => make("a", { href: `#${title.id}` }, title.textContent)));
  byId("contents").hidden = false;
}
