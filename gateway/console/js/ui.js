// Pieces that several views share.

import { fill, h, svg } from "./dom.js";

const TOAST_MS = 3500;

/** Tell something that passes. */
export function toast(text) {
  const shown = h("div", { class: "toast" }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), TOAST_MS);
}

const TONES = {
  HEALTHY: "ok", DEGRADED: "warn", UNHEALTHY: "bad", UNREACHABLE: "bad", MISCONFIGURED: "warn", UNKNOWN: "idle",
  in_service: "ok", degraded: "warn", out_of_service: "bad", unchecked: "idle",
};
const WORDS = { in_service: "in service", out_of_service: "out of service" };

/** The colour class of a status or routing state. */
export const tone = (word) => TONES[word] ?? "idle";

/** A status or routing state, for people. */
export const worded = (word) => WORDS[word] ?? String(word ?? "unknown").toLowerCase();

/** A status or routing state as a badge. */
export const badge = (word, kind = tone(word)) => h("span", { class: `badge ${kind}` }, worded(word));

/** A card with a heading; `tools` stand beside it. */
export function card(title, tools, ...body) {
  return h("section", { class: "card", "aria-label": title }, h("header", {}, h("h2", {}, title), tools), h("div", { class: "body" }, body));
}

/** A labelled control. */
export function field(label, control, hint) {
  control.id ||= `field-${label.toLowerCase().replace(/\W+/g, "-")}`;
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint ? h("span", { class: "hint" }, hint) : null);
}

/** Choices for a select: strings, or [value, text]. */
export function options(choices, chosen) {
  return choices.map((choice) => {
    const [value, text] = Array.isArray(choice) ? choice : [choice, choice];
    return h("option", { value, selected: value === chosen }, text);
  });
}

/** Names and values, one below the other. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]));
}

/** Text as it is, which takes the focus so that the keyboard can scroll it. */
export const code = (text, label) => h("pre", { class: "code", tabIndex: 0, role: "region", "aria-label": label ?? "Text" }, text);

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const button = h("button", { class: "button small", type: "button" }, label);
  button.addEventListener("click", async () => {
    const given = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(given);
      toast("Copied");
    } catch {
      toast(copied(given) ? "Copied" : "This browser does not let pages copy: select the text instead");
    }
  });
  return button;
}

/** The old way, for pages that are not served over TLS or from this machine. */
function copied(text) {
  const area = h("textarea", { class: "unseen", value: text, "aria-hidden": "true" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/**
 * Tabs with the keyboard's arrows. `panels`: [[title, build], ...]; `build()` gives the nodes of a panel when it is shown.
 */
export function tabs(label, panels, { chosen = 0, id = label.toLowerCase().replace(/\W+/g, "-") } = {}) {
  const panel = h("div", { class: "body", role: "tabpanel", id: `${id}-panel`, tabIndex: 0 });
  const buttons = panels.map(([title], index) =>
    h("button", { type: "button", role: "tab", id: `${id}-${index}`, "aria-controls": panel.id, on: { click: () => choose(index), keydown: (event) => move(event, index) } }, title),
  );
  function choose(index) {
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[index].id);
    fill(panel, panels[index][1]());
  }
  function move(event, index) {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + buttons.length) % buttons.length;
    choose(next);
    buttons[next].focus();
  }
  choose(chosen);
  return h("div", { class: "card tabbed" }, h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons), panel);
}

/** A small icon of one or more strokes in a 24 × 24 box. */
export const icon = (...paths) => svg("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true" }, paths.map((d) => svg("path", { d })));

/** What to say where something could not be read. */
export function trouble(error) {
  const text =
    error.status === 401 ? "The gateway wants a token to show this."
    : error.status === 403 ? "The policy does not let you read this: it needs a rule with read: true for your principal."
    : error.status === 404 ? "There is no such thing here (any more)."
    : error.status === 429 ? "Too many requests: the gateway limits how often you may ask."
    : `This could not be read: ${error.message}.`;
  return h("p", { class: `note ${error.status === 403 || error.status === 401 ? "warn" : "bad"}`, role: "alert" }, text);
}
