// What the forms need to know of a model, besides what all views know.
import { TOUR, type Json, type ModelInfo } from "../../api";

export interface WorkModel extends ModelInfo {
  search?: Record<string, Json> | null; // search options of the run; null: its predictions are not searched for
}

export const inputNames = (model: ModelInfo): string[] => model.inputs ?? ["text"];

const DEFAULTS: Record<string, Json> = { method: "beam", beam: 4, length_penalty: 0.6, temperature: 1, top_p: 1, seed: 0 };

/** A search option of the run; where it has none, for example because it searches by another method, the default of Python. */
export const searchDefault = (model: ModelInfo, name: string): Json => (model as WorkModel).search?.[name] ?? DEFAULTS[name];

export const isRecorded = (model: ModelInfo): boolean => model.id === TOUR;

/** An input of a server: turns and texts are separated by tabs, so that a tab inside one becomes a space. */
export const joinTexts = (texts: string[]): string => (texts.length > 1 ? texts.map((one) => one.replace(/\t/g, " ")).join("\t") : (texts[0] ?? ""));
