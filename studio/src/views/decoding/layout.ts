// Where the nodes of a search tree stand: a column for each length, in which nodes have the order of their parents, so that no two
// edges cross. The best hypothesis is the first row.
import type { Json } from "../../api";

export interface Placed {
  node: Json;
  index: number;
  x: number; // column: the length of the prefix
  y: number; // row
  word: string;
  best: boolean; // on the path of the best hypothesis
  children: number[]; // indices, from the top
}

export interface Layout {
  placed: Placed[]; // by index
  rows: number;
  depth: number; // the longest prefix
}

export function layout(tree: Json): Layout {
  const children: number[][] = tree.nodes.map(() => []);
  const roots: number[] = [];
  tree.nodes.forEach((node: Json, index: number) => (node.parent < 0 ? roots : children[node.parent]!).push(index));
  const onBest = new Set<number>();
  for (let at: number = tree.best[0] ?? -1; at >= 0; at = tree.nodes[at].parent) onBest.add(at);
  const placed: Placed[] = new Array(tree.nodes.length);
  let rows = 0, depth = -1;
  for (let column = roots; column.length; depth++) {
    column.forEach((index, y) => {
      const below = children[index]!.toSorted((a, b) => Number(onBest.has(b)) - Number(onBest.has(a)) || tree.nodes[a].rank - tree.nodes[b].rank);
      placed[index] = { node: tree.nodes[index], index, x: tree.nodes[index].length, y, word: tree.words[index], best: onBest.has(index), children: below };
    });
    rows = Math.max(rows, column.length);
    column = column.flatMap((index) => placed[index]!.children);
  }
  return { placed, rows, depth };
}

/** The nodes from the root to a node. */
export function path(placed: Placed[], index: number): Placed[] {
  const found: Placed[] = [];
  for (let at = index; at >= 0; at = placed[at]!.node.parent) found.unshift(placed[at]!);
  return found;
}
