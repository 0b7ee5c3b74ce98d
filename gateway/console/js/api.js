// The gateway's REST routes. The token lives in this module's memory and nowhere else.

/** A refusal, or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(status, message, details = []) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

let token = "";
const waiting = new Set();
const denied = new Set();

/** Be told when the gateway wants a token, or another one. */
export const onDenied = (told) => denied.add(told);

/** Whether there is a token. */
export const hasToken = () => token !== "";

/** Take a token ("" forgets it); those who listen are told. */
export function setToken(value) {
  token = value.trim();
  for (const told of waiting) told(token !== "");
}

/** Be told when a token comes or goes; gives what ends that. */
export function onToken(told) {
  waiting.add(told);
  return () => waiting.delete(told);
}

/** The URL of a route, wherever the console is mounted. `path` without a slash at its begin. */
export const url = (path) => new URL(path, document.baseURI.replace(/#.*$/, "")).href;

/** The URL of an agent's calls. */
export const agentUrl = (id) => url(`a2a/${encodeURIComponent(id)}`);

/** fetch with the token; throws ApiError if there was no answer, but gives any answer. */
export async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  let answer;
  try {
    answer = await fetch(url(path), { ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the gateway does not answer");
  }
  if (answer.status === 401) for (const told of denied) told(token !== "");
  return answer;
}

/** GET a JSON document. */
export const get = (path, options) => read(path, { ...options, method: "GET" });

/** POST JSON, get JSON. */
export const post = (path, body, options) =>
  read(path, {
    ...options,
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });

async function read(path, options) {
  const answer = await send(path, options);
  const text = await answer.text();
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    throw new ApiError(answer.status, `HTTP ${answer.status}: not JSON`);
  }
  if (!answer.ok) throw new ApiError(answer.status, words(answer.status, document), document?.details ?? []);
  return document;
}

const words = (status, document) => (typeof document?.error === "string" ? document.error : `HTTP ${status}`);

/**
 * Read server-sent events until the stream ends; `take({id, event, data})` for each. EventSource cannot send a token.
 * `opened(response)` is called with the head. Throws ApiError if there is no such stream.
 */
export async function events(path, { take, opened, signal, headers, method = "GET", body }) {
  const answer = await send(path, { method, body, signal, headers: { Accept: "text/event-stream", ...headers } });
  opened?.(answer);
  if (!answer.ok || !answer.body) throw new ApiError(answer.status, words(answer.status, await answer.json().catch(() => null)));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(take);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.feed(value);
  }
}

/** Text of server-sent events, in pieces of any size → events. */
export class EventParser {
  constructor(take) {
    this.take = take;
    this.rest = "";
    this.clear();
  }

  clear() {
    this.event = "message";
    this.data = [];
    this.raw = [];
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      if (this.data.length) this.take({ id: this.id, event: this.event, data: this.data.join("\n"), raw: this.raw.join("\n") });
      this.clear();
      return;
    }
    this.raw.push(line);
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
  }
}
