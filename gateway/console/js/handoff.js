// The handoff inspector.

import { h, fill } from "./dom.js";

/** See app.js for what a view is. */
export function mount(root) {
  fill(root, h("div", { class: "head" }, h("h1", {}, "Handoff")), h("p", { class: "empty" }, "Not there yet."));
  return () => {};
}
