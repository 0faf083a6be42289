// A layout by forces (Fruchterman and Reingold, 1991), as in the figures of Python: neighbors attract each other, d² / k, and all
// nodes repel, k² / d. It starts from a spiral and uses no random numbers, so that a graph always has the same picture.

const ROUNDS = 200;
const GRAVITY = 0.3; // keeps parts that are not connected together

/** A place of each node, from 0 to 1 on both axes. */
export function layout(count: number, edges: [number, number][]): [number, number][] {
  const places = Array.from({ length: count }, (_, at): [number, number] => {
    const [radius, angle] = [Math.sqrt((at + 0.5) / count) / 2, at * Math.PI * (3 - Math.sqrt(5))];
    return [0.5 + radius * Math.cos(angle), 0.5 + radius * Math.sin(angle)];
  });
  const near = Array.from({ length: count }, () => new Set<number>());
  for (const [first, second] of edges) if (first !== second) (near[first]!.add(second), near[second]!.add(first));
  const ideal = 0.9 / Math.sqrt(Math.max(1, count));
  for (let round = 0; round < ROUNDS; round++) {
    const moves = places.map(([x, y], at): [number, number] => {
      let [right, down] = [-GRAVITY * (x - 0.5), -GRAVITY * (y - 0.5)];
      for (let other = 0; other < count; other++) {
        if (other === at) continue;
        const [dx, dy] = [x - places[other]![0], y - places[other]![1]];
        const distance = Math.max(Math.hypot(dx, dy), 1e-3);
        const force = ideal ** 2 / distance ** 2 - (near[at]!.has(other) ? distance / ideal : 0);
        (right += dx * force), (down += dy * force);
      }
      return [right, down];
    });
    moves.forEach(([right, down], at) => {
      const size = Math.max(Math.hypot(right, down), 1e-9);
      const step = Math.min(size, 0.1 * (1 - round / ROUNDS)) / size;
      places[at] = [places[at]![0] + right * step, places[at]![1] + down * step];
    });
  }
  const ranges = [0, 1].map((axis) => places.map((one) => one[axis as 0 | 1])).map((all) => [Math.min(...all), Math.max(...all)] as const);
  return places.map((one) => [0, 1].map((axis) => (one[axis as 0 | 1] - ranges[axis]![0]) / Math.max(ranges[axis]![1] - ranges[axis]![0], 1e-9)) as [number, number]);
}

/** The node next to another one in the direction of an arrow key; itself, if there is none. */
export function neighborOf(places: [number, number][], from: number, key: string): number {
  const [right, down] = ({ ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] } as Record<string, [number, number]>)[key] ?? [0, 0];
  let best = from, least = Infinity;
  places.forEach(([x, y], at) => {
    const [dx, dy] = [x - places[from]![0], y - places[from]![1]];
    const [ahead, aside] = [dx * right + dy * down, Math.abs(dx * down) + Math.abs(dy * right)];
    if (at !== from && ahead > 1e-9 && ahead + 2 * aside < least) [best, least] = [at, ahead + 2 * aside];
  });
  return best;
}
