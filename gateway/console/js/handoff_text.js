// Texts that go out of the page or come into it, as they are.

import { h } from "./dom.js";

/** JSON with line breaks; every token stays as it came. What is no JSON is given back. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let out = "";
  tokens.forEach((token, at) => {
    const empty = (token === "}" && tokens[at - 1] === "{") || (token === "]" && tokens[at - 1] === "[");
    if ("}]".includes(token)) depth -= 1;
    if ("}]".includes(token) && !empty) out += line(depth);
    out += token === ":" ? ": " : token;
    if ("{[".includes(token)) depth += 1;
    const next = tokens[at + 1];
    if (token === "," || ("{[".includes(token) && next !== "}" && next !== "]")) out += line(depth);
  });
  return out;
}

const line = (depth) => `\n${"  ".repeat(depth)}`;

/** Hand the browser a file to save. */
export function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A date for the name of a file: 20250131-235959. */
export const stamp = (date = new Date()) => date.toISOString().replace(/[-:]/g, "").replace("T", "-").slice(0, 15);
