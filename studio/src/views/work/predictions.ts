// The predictions of a model, and of another one beside it, for the chosen input.
import { examples, post, type Json, type ModelInfo } from "../../api";
import { selection } from "../../selection.svelte";

export interface Predicted { id: string; found: Json }

/** The prediction for the selected input by each model. */
export const predictions = (model: ModelInfo, against: string, options: Json = {}): Promise<Predicted[]> =>
  Promise.all([model.id, against].filter(Boolean).map((id) => post("/api/predict", { model: id, inputs: selection.text, options }).then((reply) => ({ id, found: reply.predictions[0] }))));

/** What the data has for the selected input, where it is one of the examples. */
export const expectation = (model: ModelInfo): Promise<string | null> => {
  const text = selection.text;
  return examples(model).then(({ inputs }) => inputs.find((one) => one.text === text)?.expected ?? null);
};

/** Probabilities as rows of bars, the largest first. */
export const ranked = (probabilities: Record<string, number>): { name: string; value: number; strong: boolean }[] =>
  Object.entries(probabilities)
    .sort((a, b) => b[1] - a[1])
    .map(([name, value], at) => ({ name, value, strong: at === 0 }));
