// A streamed completion: pieces of text as they are generated; at its end the reason and the log-probabilities of its tokens.
import { messageOf, type Json } from "../../api";

export interface TokenLogProbability {
  token: string;
  logprob: number;
  top: { token: string; logprob: number }[];
}

export interface Piece {
  text: string;
  finish?: string; // stop or length
  tokens?: TokenLogProbability[];
}

export async function* completion(path: string, body: Json, signal: AbortSignal): AsyncGenerator<Piece> {
  const key = sessionStorage.getItem("heedful-key");
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }), signal });
  if (!response.ok || !response.body) throw new Error(messageOf(await response.json().catch(() => ({}))) || response.statusText);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(messageOf(event));
      const choice = event.choices?.[0];
      if (choice) yield { text: choice.delta?.content ?? choice.text ?? "", finish: choice.finish_reason ?? undefined, tokens: tokensOf(choice.logprobs) };
    }
  }
}

function tokensOf(found: Json): TokenLogProbability[] | undefined {
  return found?.tokens?.map((token: string, at: number) => ({
    token,
    logprob: found.token_logprobs[at],
    top: Object.entries(found.top_logprobs[at]).map(([other, logprob]) => ({ token: other, logprob: logprob as number })),
  }));
}
