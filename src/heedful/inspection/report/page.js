// The page: the sentence, the wall of heads and the chosen one, the alignment of words.

const WAYS = { weights: "weights", norms: "norm-weighted", rollout: "rollout" };
const ABOUT = {
  weights: "The weights themselves: the rows of a head sum to 1.",
  norms: "Each weight times the length of the projected vector that it weighs: what really came from each token (Kobayashi et al., 2020). Shades are of the head's own largest value.",
  rollout: "All heads of a layer and all layers below it multiplied, half of each the token itself: where a token's content came from (Abnar and Zuidema, 2020). Shades are of the map's own largest value.",
};
const state = { kind: 0, way: "weights", layer: 0, head: 0, pinned: null };

// ---- the sentence ----------------------------------------------------------------------------------------------------------

function showSentence() {
  const kind = facts.kinds.find((one) => one.queries === "target" && one.keys === "source") || facts.kinds.find((one) => one.keys === "both");
  byId("sentence-hint").textContent = kind
    ? "Point at a token of either side, or walk with the Tab key: what it looked at when it was said, or who looked at it, is shaded. A click keeps it."
    : "This model does not look back at what it read while it speaks.";
  let layer = "all";
  if (kind && kind.layers.length > 1) {
    const layers = [["all", "all layers"], ...kind.layers.map((one, i) => [i, `layer ${one.layer}`])];
    byId("sentence-controls").replaceChildren(picker("Mean over the heads of", layers, (value) => { layer = value; show(state.pinned); }));
  }
  const names = [kind ? facts.labels[kind.layers[0].keys] : facts.source || [], kind ? facts.labels[kind.layers[0].queries] : facts.target];
  const sides = names.map((tokens, side) => tokens.map((name, i) => make("button", {
    type: "button", dir: "auto", class: facts.marks.includes(name) ? "mark" : null, "aria-pressed": "false",
    onpointerenter: () => show([side, i]), onpointerleave: () => show(state.pinned), onfocus: () => show([side, i]), onblur: () => show(state.pinned),
    onclick: () => pin(side, i),
  }, name || "∅")));
  function pin(side, i) {
    const same = state.pinned && state.pinned[0] === side && state.pinned[1] === i;
    state.pinned = same ? null : [side, i];
    sides.forEach((chips, one) => chips.forEach((chip, j) => chip.setAttribute("aria-pressed", !same && one === side && j === i)));
    show(state.pinned);
  }
  function show(chosen) {
    sides.flat().forEach((chip) => { chip.style.background = ""; chip.style.color = ""; chip.removeAttribute("title"); });
    byId("sentence-said").textContent = "";
    if (!chosen || !kind) return;
    const [side, i] = chosen, other = 1 - side;
    const layers = layer === "all" ? kind.layers : [kind.layers[layer]];
    const map = mean(layers.flatMap((one) => [...Array(one.heads).keys()].map((head) => matrixOf(one.weights, head))));
    const weights = sides[other].map((_, j) => (side ? map.at(i, j) : map.at(j, i)));
    sides[other].forEach((chip, j) => {
      chip.style.background = css(weights[j]);
      chip.style.color = contrast(weights[j]);
      chip.title = shown(weights[j]);
    });
    const order = weights.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const list = order.map(([weight, j]) => `${isolated(names[other][j])} ${shown(weight)}`).join(", ");
    byId("sentence-said").textContent = side ? `${isolated(names[1][i])} looked at ${list}` : `${isolated(names[0][i])} was looked at by ${list}`;
  }
  const row = (text, chips) => [make("p", { class: "side" }, text), make("div", { class: "tokens" }, ...chips)];
  byId("sentence").replaceChildren(...row(facts.source ? "read" : "what had been said before", sides[0]), ...row("said", sides[1]));
  showSentence.again = () => show(state.pinned);
}

// ---- the wall and the chosen head ------------------------------------------------------------------------------------------

function thumbnail(map, top) {
  const canvas = make("canvas", { width: map.columns, height: map.rows, "aria-hidden": "true" });
  const context = canvas.getContext("2d"), pixels = context.createImageData(map.columns, map.rows);
  for (let row = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++) {
      pixels.data.set([...color(map.at(row, column) / top), 255], 4 * (row * map.columns + column));
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function showWall() {
  const kind = facts.kinds[state.kind];
  const rolled = kind.layers.some((one) => one.rollout !== null);
  if (state.way === "rollout" && !rolled) state.way = "weights";
  const layers = kind.layers.filter((one) => state.way !== "rollout" || one.rollout !== null);
  const heads = state.way === "rollout" ? 1 : Math.max(...layers.map((one) => one.heads));
  state.layer = Math.min(state.layer, layers.length - 1);
  state.head = Math.min(state.head, (state.way === "rollout" ? 1 : layers[state.layer].heads) - 1);
  byId("attention-controls").replaceChildren(
    choice("who looks at whom", facts.kinds.map((one, i) => ({ value: i, text: one.about })), state.kind, (value) => { state.kind = value; showWall(); byId("attention-controls").querySelector("input:checked").focus(); }),
    choice("by", Object.entries(WAYS).map(([value, text]) => ({ value, text, off: value === "rollout" && !rolled, why: "only where tokens look at their own sequence, layer by layer" })), state.way, (value) => { state.way = value; showWall(); byId("attention-controls").querySelectorAll("fieldset")[1].querySelector("input:checked").focus(); }),
  );
  byId("way-hint").textContent = ABOUT[state.way];
  const wall = byId("wall");
  wall.style.gridTemplateColumns = `minmax(30px, max-content) repeat(${heads}, minmax(0, 96px))`;
  wall.replaceChildren(make("span"));
  for (let head = 0; head < heads; head++) wall.append(make("span", { class: "name" }, state.way === "rollout" ? "all heads" : innerWidth > 560 ? `head ${head}` : head));
  layers.forEach((layer, i) => {
    wall.append(make("span", { class: "name layer" }, innerWidth > 560 ? `layer ${layer.layer}` : `L${layer.layer}`));
    for (let head = 0; head < heads; head++) {
      if (state.way !== "rollout" && head >= layer.heads) { wall.append(make("span")); continue; }
      const map = mapOf(layer, head, state.way);
      const chosen = i === state.layer && head === state.head;
      wall.append(make("button", {
        type: "button", "aria-pressed": chosen, tabindex: chosen ? 0 : -1, "data-layer": i, "data-head": head,
        "aria-label": `${kind.name}, layer ${layer.layer}, ${state.way === "rollout" ? "rollout" : `head ${head}, entropy ${layer.entropy[head].toFixed(2)} bits`}`,
        onclick: () => choose(i, head), onkeydown: (event) => walk(event, i, head, layers),
      }, thumbnail(map, state.way === "weights" ? 1 : most(map))));
    }
  });
  showHead(layers);
}

function choose(layer, head) {
  state.layer = layer;
  state.head = head;
  byId("wall").querySelectorAll("button").forEach((one) => {
    const chosen = Number(one.dataset.layer) === layer && Number(one.dataset.head) === head;
    one.setAttribute("aria-pressed", chosen);
    one.tabIndex = chosen ? 0 : -1;
    if (chosen) one.focus({ preventScroll: true });
  });
  showHead(facts.kinds[state.kind].layers.filter((one) => state.way !== "rollout" || one.rollout !== null));
}

function walk(event, layer, head, layers) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const to = Math.min(Math.max(layer + step[0], 0), layers.length - 1);
  const heads = state.way === "rollout" ? 1 : layers[to].heads;
  choose(to, Math.min(Math.max(head + step[1], 0), heads - 1));
}

function showHead(layers) {
  const kind = facts.kinds[state.kind], layer = layers[state.layer], head = state.head;
  const name = state.way === "rollout" ? `${kind.name} · up to layer ${layer.layer} · rollout` : `${kind.name} · layer ${layer.layer} · head ${head} · ${WAYS[state.way]}`;
  byId("head-title").textContent = name;
  byId("head-facts").textContent = state.way === "rollout" ? "" : `entropy ${layer.entropy[head].toFixed(4)} bits (${(2 ** layer.entropy[head]).toFixed(1)} tokens' worth) · largest weight on average ${layer.largest[head].toFixed(4)}`;
  const map = mapOf(layer, head, state.way), rows = facts.labels[layer.queries], columns = facts.labels[layer.keys];
  const say = (text) => { byId("cell").textContent = text; };
  say("");
  byId("split").classList.toggle("stacked", Math.max(rows.length, columns.length) > 20 || layers.some((one) => one.heads > 8));
  const top = state.way === "weights" ? 1 : most(map);
  drawMatrix(byId("matrix"), map, [rows, columns], { label: `${name}: matrix of ${rows.length} by ${columns.length} tokens`, top, say });
  drawLines(byId("lines"), map, [rows, columns], { label: `${name}: lines between tokens`, top });
  byId("scale-most").textContent = state.way === "weights" ? "1" : `${top.toPrecision(3)} in this ${state.way === "rollout" ? "map" : "head"}`;
  const numbers = byId("numbers");
  const fill = () => numbers.open && numbers.querySelector("div").replaceChildren(make("table", {},
    make("tr", {}, make("th", {}), ...columns.map((column) => make("th", { dir: "auto", scope: "col" }, column))),
    ...rows.map((row, i) => make("tr", {}, make("th", { dir: "auto", scope: "row" }, row), ...columns.map((_, j) => make("td", { class: "number" }, shown(map.at(i, j))))))));
  numbers.ontoggle = fill;
  fill();
}

// ---- soft alignment --------------------------------------------------------------------------------------------------------

function showAlignment() {
  if (!facts.words) return byId("alignment")?.remove();
  const { source, target, layers } = facts.words;
  const draw = (chosen) => {
    const map = chosen === "all" ? mean(layers.map((one) => matrixOf(one.weights))) : matrixOf(layers[chosen].weights);
    const label = `soft alignment of ${target.length} words with ${source.length}`;
    drawMatrix(byId("words"), map, [target, source], { label, top: 1, say: (text) => { byId("words-said").textContent = text; } });
    const links = target.map((_, row) => {
      let best = 0;
      for (let column = 1; column < source.length; column++) if (map.at(row, column) > map.at(row, best)) best = column;
      return `${best}-${row}`;
    });
    byId("pharaoh").textContent = links.sort((a, b) => parseInt(a) - parseInt(b) || parseInt(a.split("-")[1]) - parseInt(b.split("-")[1])).join(" ");
  };
  const options = [["all", "all layers"], ...layers.map((one, i) => [i, `layer ${one.layer}`])];
  if (layers.length > 1) byId("alignment-controls").replaceChildren(picker("Mean over the heads of", options, draw));
  draw("all");
}

// ---- begin -----------------------------------------------------------------------------------------------------------------

function showAll() {
  showWall();
  showAlignment();
  showSentence.again?.();
}

// All of it runs before the load event: whoever waits for that sees the whole page.
function begin() {
  arrays = unpack(facts.numbers);
  byId("title").append(...facts.title.map((text, i) => make("span", { dir: "auto", class: i ? "said-title" : null }, text)));
  byId("title").classList.toggle("long", facts.title.join("").length > 120);
  byId("facts").textContent = facts.facts.join(" · ");
  if (facts.kinds.length) showWall();
  else byId("attention").remove();
  if (facts.target) showSentence();
  else byId("about-sentence").remove();
  showAlignment();
  showMore();
  showContents();
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    if (facts.kinds.length) showAll();
  });
  const room = document.querySelector("main");
  let width = room.clientWidth, waiting = 0;
  new ResizeObserver(() => {  // whatever made it narrower: the window, or a bar that scrolls the page
    cancelAnimationFrame(waiting);
    if (room.clientWidth !== width && facts.kinds.length) waiting = requestAnimationFrame(() => { width = room.clientWidth; showAll(); });
  }).observe(room);
  document.documentElement.dataset.ready = "yes";
}

begin();
