// Tokens as text. A tokenizer of subwords marks the first token of a word by "▁"; people read words.
import { shown } from "../../format";

const SPECIAL = /^<\/?[a-z]+>$/;

export const isSpecial = (token: string): boolean => SPECIAL.test(token) || token === "…";

/** Whether a token continues the word of the token before it. */
export const isContinuation = (token: string): boolean => !token.startsWith("▁") && !isSpecial(token);

/** A token alone; the end token by its name. */
export const tokenText = (token: string): string => (token === "</s>" ? "end" : shown(token));

/** The text of several tokens; without marks, every token is a word. */
export function joinTokens(tokens: string[]): string {
  const marked = tokens.some((token) => token.startsWith("▁"));
  return tokens.map((token) => (isSpecial(token) ? ` ${tokenText(token)}` : marked ? token.replace(/^▁/, " ") : ` ${token}`)).join("").trim();
}

const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** The direction of the first letter. The attribute dir="auto" ignores the text of <bdi> elements, in which tokens are isolated. */
export function directionOf(tokens: string[]): "ltr" | "rtl" {
  const first = tokens.filter((token) => !isSpecial(token)).join(" ").match(/\p{L}/u)?.[0] ?? "";
  return RIGHT_TO_LEFT.test(first) ? "rtl" : "ltr";
}
