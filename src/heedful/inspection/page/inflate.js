"use strict";
// Inflate (RFC 1950 and 1951). The browser's own, DecompressionStream, is asynchronous: with it a page would still be empty
// when its load event fires. Codes are read bit by bit, which takes a tenth of a second for the largest page.

const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
const DISTANCE_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

// A canonical Huffman code: how many symbols have each length, and the symbols in the order of their codes.
function codeOf(lengths) {
  const counts = new Uint16Array(16), next = new Uint16Array(16), symbols = new Uint16Array(lengths.length);
  for (const length of lengths) if (length) counts[length]++;
  for (let length = 1; length < 16; length++) next[length] = next[length - 1] + counts[length - 1];
  lengths.forEach((length, symbol) => { if (length) symbols[next[length]++] = symbol; });
  return { counts, symbols };
}

// A zlib stream -> its `size` bytes.
function inflate(packed, size) {
  const out = new Uint8Array(size);
  let at = 2, bit = 0, put = 0;  // two bytes of header

  const read = (count) => {
    let value = 0;
    for (let i = 0; i < count; i++) {
      value |= ((packed[at] >> bit) & 1) << i;
      if (++bit === 8) { bit = 0; at++; }
    }
    return value;
  };

  const symbolOf = ({ counts, symbols }) => {
    let code = 0, first = 0, index = 0;
    for (let length = 1; length < 16; length++) {
      code |= read(1);
      if (code - first < counts[length]) return symbols[index + code - first];
      index += counts[length];
      first = (first + counts[length]) << 1;
      code <<= 1;
    }
    throw new Error("the numbers of this page are damaged");
  };

  const fixedCodes = () => {
    const lengths = Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8));
    return [codeOf(lengths), codeOf(Array(30).fill(5))];
  };

  const writtenCodes = () => {
    const literals = read(5) + 257, distances = read(5) + 1, coded = read(4) + 4, lengths = Array(19).fill(0);
    for (let i = 0; i < coded; i++) lengths[CODE_ORDER[i]] = read(3);
    const code = codeOf(lengths), all = [];
    while (all.length < literals + distances) {
      const symbol = symbolOf(code);
      if (symbol < 16) all.push(symbol);
      else if (symbol === 16) all.push(...Array(3 + read(2)).fill(all.at(-1)));
      else all.push(...Array(symbol === 17 ? 3 + read(3) : 11 + read(7)).fill(0));
    }
    return [codeOf(all.slice(0, literals)), codeOf(all.slice(literals))];
  };

  const copyStored = () => {
    if (bit) { bit = 0; at++; }
    const count = packed[at] + 256 * packed[at + 1];
    out.set(packed.subarray(at + 4, at + 4 + count), put);
    at += 4 + count;
    put += count;
  };

  const decode = ([literals, distances]) => {
    for (let symbol = symbolOf(literals); symbol !== 256; symbol = symbolOf(literals)) {
      if (symbol < 256) { out[put++] = symbol; continue; }
      const count = LENGTHS[symbol - 257] + read(LENGTH_BITS[symbol - 257]), far = symbolOf(distances);
      const distance = DISTANCES[far] + read(DISTANCE_BITS[far]);
      for (let i = 0; i < count; i++, put++) out[put] = out[put - distance];
    }
  };

  for (let last = 0; !last;) {
    last = read(1);
    const kind = read(2);
    if (kind === 0) copyStored();
    else decode(kind === 1 ? fixedCodes() : writtenCodes());
  }
  return out;
}
