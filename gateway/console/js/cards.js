// The three cards of an agent, and where they differ.

import { h } from "./dom.js";
import { pretty } from "./format.js";
import { copyButton, tabs } from "./ui.js";

/** What a name of the drift list is about. */
const MEMBERS = {
  protocol_versions: ["protocolVersion", "supportedInterfaces", "protocolVersions"],
  address: ["url", "supportedInterfaces", "additionalInterfaces", "preferredTransport"],
};
const membersOf = (name) => MEMBERS[name] ?? [name];

/** `cards`: {registered, published, served}, each a card, or null, or a sentence why there is none. */
export function cardTabs(cards, drift) {
  const marked = new Set(drift.flatMap(membersOf));
  const panel = (card, marks) => () =>
    typeof card === "string" || !card
      ? [h("p", { class: "empty" }, card || "There is none.")]
      : [h("div", { class: "row end" }, copyButton(pretty(card))), jsonLines(card, marks)];
  const panels = [
    ["Registered", panel(cards.registered, marked)],
    ["Published", panel(cards.published, marked)],
    ["Served by the gateway", panel(cards.served, new Set())],
  ];
  if (drift.length) panels.unshift([`Drift (${drift.length})`, () => differences(cards, drift)]);
  return tabs("Cards", panels);
}

function differences(cards, drift) {
  const published = typeof cards.published === "object" ? cards.published : null;
  return [
    h("p", { class: "note warn" }, "The agent publishes another card than it has registered. Register it again with the card it publishes."),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Differences" },
      h("table", { class: "table drift" },
        h("thead", {}, h("tr", {}, ["Member", "Registered", "Published"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, drift.map((name) => h("tr", {}, h("th", { scope: "row" }, name), side(cards.registered, name), side(published, name)))),
      ),
    ),
  ];
}

function side(card, name) {
  const members = membersOf(name).filter((member) => card?.[member] !== undefined);
  if (!card) return h("td", { class: "muted" }, "not kept");
  if (!members.length) return h("td", { class: "muted" }, "absent");
  return h("td", {}, members.map((member) => h("pre", { class: "value" }, members.length > 1 ? `${member}: ${pretty(card[member])}` : pretty(card[member]))));
}

/** A card as text, a line per line; those of the members in `marks` stand out. */
function jsonLines(card, marks) {
  const lines = [];
  const entries = Object.entries(card);
  entries.forEach(([member, value], index) => {
    const text = `  ${JSON.stringify(member)}: ${pretty(value).replaceAll("\n", "\n  ")}${index < entries.length - 1 ? "," : ""}\n`;
    lines.push(marks.has(member) ? h("mark", { class: "drifted" }, text) : text);
  });
  return h("pre", { class: "code", tabIndex: 0, role: "region", "aria-label": "Card" }, "{\n", lines, "}");
}
