import { fill, h } from "./dom.js";

/** See app.js for what a view is. */
export function mount(root) {
  fill(root, h("div", { class: "head" }, h("h1", {}, "agent")));
  return () => {};
}
