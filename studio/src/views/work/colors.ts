// Colors of things that are told apart by number, on light and on dark backgrounds.

const CURVES = ["#3b76d6", "#c5681a", "#2e8b57", "#a04fb5", "#b23b53", "#5f7d1f", "#0f8a94", "#8a6d3b"];
const LABELS = ["#2f66c2", "#b0590f", "#23784a", "#8d3fa3", "#a8324a", "#556f14", "#0b727c", "#7a5c2a"];

export const curveColor = (at: number): string => CURVES[at % CURVES.length]!;

/** White text is readable on it. */
export const labelColor = (at: number): string => LABELS[at % LABELS.length]!;
