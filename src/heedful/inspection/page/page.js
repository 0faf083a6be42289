// The page: tokens, the grid of heads, the selected head, and the word alignment.

const VALUES = { weights: "weights", norms: "norm-weighted", rollout: "rollout" };
const VALUE_HINTS = {
  weights: "Attention weights; each row sums to 1.",
  norms: "Each weight times the norm of the projected value vector: the contribution of each token (Kobayashi et al., 2020). Colors are scaled to the largest value of the head.",
  rollout: "Attention rollout: the product of the head-averaged weights of this layer and all layers below, with the residual connection weighted 0.5 (Abnar and Zuidema, 2020). Colors are scaled to the largest value of the layer.",
};
const state = { kind: 0, values: "weights", layer: 0, head: 0, pinned: null };

// ---- tokens ----------------------------------------------------------------------------------------------------------------

function showSentence() {
  const kind = facts.kinds.find((one) => one.queries === "target" && one.keys === "source") || facts.kinds.find((one) => one.keys === "both");
  byId("sentence-hint").textContent = kind && facts.consumes
    ? "Point at a token, or move to it with the Tab key, to highlight the tokens that it attends to, or those that attend to it. The last token predicts the label. Click to keep the selection."
    : kind
    ? "Point at a token, or move to it with the Tab key. An output token highlights the tokens that the step predicting it attends to; an input token highlights the output tokens whose steps attend to it. Click to keep the selection."
    : "This model has no attention from the output to the source.";
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
    byId("sentence-status").textContent = "";
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
    byId("sentence-status").textContent = side ? `${isolated(names[1][i])} attends to ${list}` : `${isolated(names[0][i])} is attended to by ${list}`;
  }
  const row = (text, chips) => [make("p", { class: "side" }, text), make("div", { class: "tokens" }, ...chips)];
  byId("sentence").replaceChildren(...row(facts.source ? "Source" : "Input", sides[0]), ...row(facts.source ? "Output" : facts.consumes ? "Query" : "Predicted", sides[1]));
  showSentence.again = () => show(state.pinned);
}

// ---- the grid of heads and the selected head -------------------------------------------------------------------------------

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

function showHeadGrid() {
  const kind = facts.kinds[state.kind];
  const rolled = kind.layers.some((one) => one.rollout !== null);
  if (state.values === "rollout" && !rolled) state.values = "weights";
  const layers = kind.layers.filter((one) => state.values !== "rollout" || one.rollout !== null);
  const heads = state.values === "rollout" ? 1 : Math.max(...layers.map((one) => one.heads));
  state.layer = Math.min(state.layer, layers.length - 1);
  state.head = Math.min(state.head, (state.values === "rollout" ? 1 : layers[state.layer].heads) - 1);
  byId("attention-controls").replaceChildren(
    choice("Attention", facts.kinds.map((one, i) => ({ value: i, text: one.about })), state.kind, (value) => { state.kind = value; showHeadGrid(); byId("attention-controls").querySelector("input:checked").focus(); }),
    choice("Values", Object.entries(VALUES).map(([value, text]) => ({ value, text, off: value === "rollout" && !rolled, why: "available for self-attention only" })), state.values, (value) => { state.values = value; showHeadGrid(); byId("attention-controls").querySelectorAll("fieldset")[1].querySelector("input:checked").focus(); }),
  );
  byId("values-hint").textContent = VALUE_HINTS[state.values];
  const grid = byId("head-grid");
  grid.style.gridTemplateColumns = `minmax(30px, max-content) repeat(${heads}, minmax(0, 96px))`;
  grid.replaceChildren(make("span"));
  for (let head = 0; head < heads; head++) grid.append(make("span", { class: "name" }, state.values === "rollout" ? "all heads" : innerWidth > 560 ? `head ${head}` : head));
  layers.forEach((layer, i) => {
    grid.append(make("span", { class: "name layer" }, innerWidth > 560 ? `layer ${layer.layer}` : `L${layer.layer}`));
    for (let head = 0; head < heads; head++) {
      if (state.values !== "rollout" && head >= layer.heads) { grid.append(make("span")); continue; }
      const map = mapOf(layer, head, state.values);
      const chosen = i === state.layer && head === state.head;
      grid.append(make("button", {
        type: "button", "aria-pressed": chosen, tabindex: chosen ? 0 : -1, "data-layer": i, "data-head": head,
        "aria-label": `${kind.name}, layer ${layer.layer}, ${state.values === "rollout" ? "rollout" : `head ${head}, entropy ${layer.entropy[head].toFixed(2)} bits`}`,
        onclick: () => choose(i, head), onkeydown: (event) => moveSelection(event, i, head, layers),
      }, thumbnail(map, state.values === "weights" ? 1 : most(map))));
    }
  });
  showHead(layers);
}

function choose(layer, head) {
  state.layer = layer;
  state.head = head;
  byId("head-grid").querySelectorAll("button").forEach((one) => {
    const chosen = Number(one.dataset.layer) === layer && Number(one.dataset.head) === head;
    one.setAttribute("aria-pressed", chosen);
    one.tabIndex = chosen ? 0 : -1;
    if (chosen) one.focus({ preventScroll: true });
  });
  showHead(facts.kinds[state.kind].layers.filter((one) => state.values !== "rollout" || one.rollout !== null));
}

function moveSelection(event, layer, head, layers) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const to = Math.min(Math.max(layer + step[0], 0), layers.length - 1);
  const heads = state.values === "rollout" ? 1 : layers[to].heads;
  choose(to, Math.min(Math.max(head + step[1], 0), heads - 1));
}

function showHead(layers) {
  const kind = facts.kinds[state.kind], layer = layers[state.layer], head = state.head;
  const name = state.values === "rollout" ? `${kind.name} · up to layer ${layer.layer} · rollout` : `${kind.name} · layer ${layer.layer} · head ${head} · ${VALUES[state.values]}`;
  byId("head-title").textContent = name;
  byId("head-facts").textContent = state.values === "rollout" ? "" : `entropy ${layer.entropy[head].toFixed(4)} bits (perplexity ${(2 ** layer.entropy[head]).toFixed(1)} tokens) · mean maximum weight ${layer.largest[head].toFixed(4)}`;
  const map = mapOf(layer, head, state.values), rows = facts.labels[layer.queries], columns = facts.labels[layer.keys];
  const showStatus = (text) => { byId("cell").textContent = text; };
  showStatus("");
  byId("split").classList.toggle("stacked", Math.max(rows.length, columns.length) > 20 || layers.some((one) => one.heads > 8));
  const top = state.values === "weights" ? 1 : most(map);
  drawMatrix(byId("matrix"), map, [rows, columns], { label: `${name}: heatmap of ${rows.length} by ${columns.length} tokens`, top, say: showStatus });
  drawLines(byId("lines"), map, [rows, columns], { label: `${name}: lines between tokens`, top });
  byId("scale-most").textContent = state.values === "weights" ? "1" : `${top.toPrecision(3)} in this ${state.values === "rollout" ? "layer" : "head"}`;
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
    const label = `soft alignment: ${target.length} output words by ${source.length} source words`;
    drawMatrix(byId("words"), map, [target, source], { label, top: 1, say: (text) => { byId("words-status").textContent = text; } });
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
  showHeadGrid();
  showAlignment();
  showSentence.again?.();
}

// Everything is drawn before the load event fires.
function begin() {
  arrays = unpack(facts.numbers);
  byId("title").append(...facts.title.map((text, i) => make("span", { dir: "auto", class: i ? "output-title" : null }, text)));
  byId("title").classList.toggle("long", facts.title.join("").length > 120);
  byId("facts").textContent = facts.facts.join(" · ");
  if (facts.kinds.length) showHeadGrid();
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
  new ResizeObserver(() => {  // the window was resized, or a scroll bar appeared
    cancelAnimationFrame(waiting);
    if (room.clientWidth !== width && facts.kinds.length) waiting = requestAnimationFrame(() => { width = room.clientWidth; showAll(); });
  }).observe(room);
  document.documentElement.dataset.ready = "yes";
}

begin();
