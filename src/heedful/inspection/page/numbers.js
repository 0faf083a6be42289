// The arrays of a page: unpacked once, then read as matrices.

const byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("data").textContent);
let arrays = [];

function unpack(text) {
  const size = facts.arrays.reduce((sum, [coding, ...shape]) => sum + shape.reduce((a, b) => a * b, coding === "f32" ? 4 : 2), 0);
  const bytes = inflate(Uint8Array.from(atob(text), (mark) => mark.charCodeAt(0)), size);
  let at = 0;
  return facts.arrays.map(([coding, ...shape]) => {
    const count = shape.reduce((a, b) => a * b, 1);
    let values;
    if (coding === "f32") {  // byte planes: all first bytes, then all second bytes, …
      const joined = new Uint8Array(4 * count);
      for (let plane = 0; plane < 4; plane++) for (let i = 0; i < count; i++) joined[4 * i + plane] = bytes[at + plane * count + i];
      values = new Float32Array(joined.buffer);
      at += 4 * count;
    } else {  // ten-thousandths
      values = new Float32Array(count);
      for (let i = 0; i < count; i++) values[i] = (bytes[at + i] + 256 * bytes[at + count + i]) / 10000;
      at += 2 * count;
    }
    return { shape, values };
  });
}

function matrixOf(reference, head = 0) {
  const { shape: [, rows, columns], values } = arrays[reference];
  return { rows, columns, at: (row, column) => values[(head * rows + row) * columns + column] };
}

function mapOf(layer, head, values) {
  if (values === "rollout") return matrixOf(layer.rollout);
  const plain = matrixOf(layer.weights, head);
  if (values === "weights") return plain;
  const norms = matrixOf(layer.norms, head);
  return { ...plain, at: (row, column) => plain.at(row, column) * norms.at(norms.rows === 1 ? 0 : row, column) };
}

function most(map) {
  let largest = 0;
  for (let row = 0; row < map.rows; row++) for (let column = 0; column < map.columns; column++) largest = Math.max(largest, map.at(row, column));
  return largest || 1;
}

function mean(maps) {
  return { ...maps[0], at: (row, column) => maps.reduce((sum, map) => sum + map.at(row, column), 0) / maps.length };
}

const shown = (value) => value.toFixed(4);
