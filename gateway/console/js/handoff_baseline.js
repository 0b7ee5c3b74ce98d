// The baseline: a trace that is kept to be compared with the next ones, as long as the page is open.

import { fill, h } from "./dom.js";
import { card } from "./ui.js";
import { compare } from "./handoff_compare.js";

let kept = null; // outlives the view, not the page

export class Baseline {
  /** `capture()` gives {inputs, result}, or null while there is no trace. */
  constructor(capture) {
    this.current = null;
    this.key = "";
    this.keep = h("button", { class: "button small", type: "button", on: { click: () => this.take(capture()) } });
    this.clear = h("button", { class: "button small", type: "button", on: { click: () => this.take(null) } }, "Clear baseline");
    this.body = h("div", {});
    this.element = card("Baseline", [this.keep, this.clear], this.body);
  }

  take(captured) {
    kept = captured;
    this.show(this.current, this.seconds);
  }

  show(current, seconds) {
    this.current = current;
    this.seconds = seconds;
    const rows = kept && current ? compare(kept, current, seconds) : null;
    const key = JSON.stringify([kept === null, current === null, rows]);
    if (key === this.key) return;
    this.key = key;
    this.keep.textContent = kept ? "Replace baseline" : "Capture baseline";
    this.keep.disabled = current === null;
    this.clear.disabled = kept === null;
    fill(this.body, rows ? tables(rows) : h("p", { class: "muted" }, hint(current)));
  }
}

function hint(current) {
  if (!kept) return "Capture a trace, change an input, and compare the next one with it.";
  return current === null ? "A baseline is kept. Play the trace to compare the two." : "";
}

function tables({ rows, inputs }) {
  const changed = inputs.filter((row) => row.differs);
  const count = rows.filter((row) => row.differs).length;
  return [
    h("p", { class: "handoff-sum", role: "status" }, count ? `${count} of ${rows.length} differ at this moment.` : "No difference at this moment."),
    changed.length ? table("Inputs that differ", changed) : h("p", { class: "muted" }, "The inputs are the same."),
    table("Outcome", rows),
  ];
}

function table(title, rows) {
  return h(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": title },
    h(
      "table",
      { class: "table handoff-compare" },
      h("caption", {}, title),
      h("thead", {}, h("tr", {}, ["", "Baseline", "Now"].map((name, at) => (at ? h("th", { scope: "col" }, name) : h("td", {}))))),
      h("tbody", {}, rows.map(({ name, before, now, differs }) => h("tr", { class: differs ? "differs" : "" }, h("th", { scope: "row" }, name), h("td", {}, before), h("td", {}, now, differs ? h("span", { class: "unseen" }, " (differs)") : null)))),
    ),
  );
}
