// Drawing: elements, colors, the tooltip, and the two views of attention weights (heatmap and lines). Model output is inserted as text.

const LIGHT = [[245, 248, 252], [197, 216, 238], [112, 161, 210], [36, 98, 168], [9, 40, 92]];
const DARK = [[27, 36, 49], [35, 66, 104], [52, 112, 176], [120, 178, 238], [226, 241, 255]];

function make(name, options = {}, ...children) {
  const space = ["svg", "g", "rect", "text", "path", "title"].includes(name) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(options)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function choice(legend, options, chosen, onchange) {
  const name = `choice-${legend.replace(/\W+/g, "-")}`;
  const labels = options.map(({ value, text, off, why }) => {
    const input = make("input", { type: "radio", name, value, onchange: () => onchange(value) });
    input.checked = value === chosen;
    input.disabled = Boolean(off);
    return make("label", off ? { title: why } : {}, input, text);
  });
  return make("fieldset", {}, make("legend", {}, legend), make("div", { class: "switch" }, ...labels));
}

function picker(text, options, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) });
  select.append(...options.map(([value, label]) => make("option", { value }, label)));
  return make("label", {}, `${text} `, select);
}

// ---- colors ---------------------------------------------------------------------------------------------------------------

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function color(share) {
  const stops = isDark() ? DARK : LIGHT;
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(at), stops.length - 2);
  return stops[below].map((value, i) => Math.round(value + (stops[below + 1][i] - value) * (at - below)));
}

const css = (share) => `rgb(${color(share).join(" ")})`;
const contrast = (share) => (share > 0.55 ? (isDark() ? "#10151c" : "#ffffff") : "");

// ---- the tooltip -----------------------------------------------------------------------------------------------------------

function showTip(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

// ---- views -----------------------------------------------------------------------------------------------------------------

function widest(names) {
  const canvas = widest.canvas ||= document.createElement("canvas").getContext("2d");
  canvas.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
  return Math.max(0, ...names.map((name) => canvas.measureText(name).width));
}

const isolated = (name) => `\u2068${name}\u2069`;  // so that right-to-left text does not reorder its neighbors
const pairing = (query, key, value) => `${isolated(query)} → ${isolated(key)}: ${shown(value)}`;
const clipped = (name) => { const marks = [...name]; return marks.length > 22 ? `${marks.slice(0, 21).join("")}…` : name || "∅"; };

function drawMatrix(place, map, [rows, columns], { label, top, say }) {
  const [left, right] = [rows.map(clipped), columns.map(clipped)];
  const x = Math.ceil(widest(left)) + 12, reach = widest(right);
  const y = Math.ceil(reach * 0.87) + 14, lean = Math.max(10, Math.ceil(reach * 0.5));
  const room = Math.min((place.closest(".views") || place).clientWidth - x - lean, 560) / map.columns;  // as large as fits, within limits
  const cell = Math.floor(Math.min(36, Math.max(15, room)));
  const width = x + cell * map.columns + lean, height = y + cell * map.rows + 4;
  const svg = make("svg", { width, height, tabindex: 0, role: "img", "aria-label": label });
  for (let row = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++) {
      const fill = css(map.at(row, column) / top);
      svg.append(make("rect", { x: x + cell * column, y: y + cell * row, width: cell + 0.3, height: cell + 0.3, fill }));
    }
    svg.append(make("text", { x: x - 7, y: y + cell * (row + 0.5), "text-anchor": "end", "dominant-baseline": "central" }, left[row]));
  }
  right.forEach((name, column) => {
    const at = [x + cell * (column + 0.5), y - 6];
    svg.append(make("text", { x: at[0], y: at[1], transform: `rotate(-60 ${at[0]} ${at[1]})`, "dominant-baseline": "central" }, name));
  });
  const cursor = make("rect", { class: "cursor", width: cell, height: cell, visibility: "hidden" });
  svg.append(make("rect", { class: "frame", x, y, width: cell * map.columns, height: cell * map.rows }), cursor);
  let row = 0, column = 0;
  const move = (newRow, newColumn) => {
    row = Math.min(Math.max(newRow, 0), map.rows - 1);
    column = Math.min(Math.max(newColumn, 0), map.columns - 1);
    cursor.setAttribute("x", x + cell * column);
    cursor.setAttribute("y", y + cell * row);
    cursor.setAttribute("visibility", "visible");
    const text = pairing(rows[row], columns[column], map.at(row, column));
    say(text);
    return text;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const [u, v] = [Math.floor((event.clientX - box.left - x) / cell), Math.floor((event.clientY - box.top - y) / cell)];
    if (u < 0 || v < 0 || u >= map.columns || v >= map.rows) return hideTip();
    showTip(event, move(v, u));
  });
  svg.addEventListener("pointerleave", hideTip);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    move(row + step[0], column + step[1]);
  });
  svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) move(row, column); });
  place.replaceChildren(svg);
}

function drawLines(place, map, [rows, columns], { label, top }) {
  const [left, right] = [rows.map(clipped), columns.map(clipped)];
  const step = Math.max(rows.length, columns.length) <= 12 ? 28 : 20;
  const x = Math.ceil(widest(left)) + 10, u = x + 170;
  const longest = Math.max(rows.length, columns.length);
  const at = (side, i) => 6 + ((longest - (side ? columns : rows).length) * step) / 2 + step * (i + 0.5);
  const svg = make("svg", { width: u + Math.ceil(widest(right)) + 14, height: step * longest + 12, role: "img", "aria-label": label });
  const paths = [];
  for (let row = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++) {
      const value = map.at(row, column), share = Math.min(value / top, 1);
      if (share < 0.01) continue;
      const [y, v, middle] = [at(0, row), at(1, column), (x + u) / 2];
      const path = make("path", {
        d: `M${x} ${y}C${middle} ${y} ${middle} ${v} ${u} ${v}`, fill: "none", stroke: "var(--accent)",
        "stroke-width": (1 + 2.5 * share).toFixed(2), "stroke-opacity": share.toFixed(3),
      }, make("title", {}, pairing(rows[row], columns[column], value)));
      paths.push({ path, row, column });
      svg.append(path);
    }
  }
  const alone = (side, i) => paths.forEach(({ path, row, column }) => path.classList.toggle("faded", i !== null && (side ? column : row) !== i));
  [[left, 0, x - 8, "end"], [right, 1, u + 8, "start"]].forEach(([names, side, where, anchor]) => names.forEach((name, i) => {
    svg.append(make("text", {
      x: where, y: at(side, i), "text-anchor": anchor, "dominant-baseline": "central", class: "end",
      onpointerenter: () => alone(side, i), onpointerleave: () => alone(side, null),
    }, name));
  }));
  place.replaceChildren(svg);
}
