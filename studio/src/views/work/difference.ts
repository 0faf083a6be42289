// The words of a text that are not part of its longest common subsequence with another text. Texts without spaces, as in Chinese
// and Japanese, are compared character by character.

export interface Part {
  text: string;
  spaced: boolean; // preceded by a space
  differs: boolean;
}

const isSpaced = (text: string): boolean => /\S\s+\S/.test(text);

export function difference(text: string, other: string): Part[] {
  const spaced = isSpaced(text) || isSpaced(other);
  const units = (given: string): string[] => (spaced ? given.split(/\s+/).filter(Boolean) : Array.from(given));
  const ours = units(text), theirs = units(other);
  // length[i][j]: of the longest common subsequence of ours from i on and theirs from j on
  const length = Array.from({ length: ours.length + 1 }, () => new Array<number>(theirs.length + 1).fill(0));
  for (let i = ours.length - 1; i >= 0; i--)
    for (let j = theirs.length - 1; j >= 0; j--)
      length[i]![j] = ours[i] === theirs[j] ? length[i + 1]![j + 1]! + 1 : Math.max(length[i + 1]![j]!, length[i]![j + 1]!);
  const parts: Part[] = [];
  let j = 0;
  ours.forEach((unit, i) => {
    while (j < theirs.length && unit !== theirs[j] && length[i]![j + 1] === length[i]![j]) j++;
    const same = j < theirs.length && unit === theirs[j];
    if (same) j++;
    const last = parts.at(-1);
    if (last && last.differs === !same) last.text += (spaced ? " " : "") + unit;
    else parts.push({ text: unit, spaced: spaced && parts.length > 0, differs: !same });
  });
  return parts;
}
