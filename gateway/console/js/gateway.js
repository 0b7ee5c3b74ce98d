// The gateway itself: process, nodes, limits, recent faults, settings in force.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { age, milliseconds, number, time } from "./format.js";
import { badge, card, facts, field, trouble } from "./ui.js";

const PERIOD_MS = 5000;
const FULL = 0.9;
const BUSY = 0.7;

/** See app.js for what a view is. */
export function mount(root, { signal }) {
  const page = new Page(root, signal);
  page.poll();
  return () => page.stop();
}

class Page {
  constructor(root, signal) {
    this.root = root;
    this.signal = signal;
    this.head = h("div", { class: "row" });
    this.process = h("div");
    this.nodes = h("div");
    this.limits = h("div");
    this.faults = h("div");
    this.contact = h("span");
    this.settings = new Settings();
    fill(root,
      h("div", { class: "head" }, h("h1", {}, "Gateway"), this.head),
      h("div", { class: "stack" },
        h("div", { class: "split" }, card("Process", null, this.process), card("Limits and their use", null, this.limits)),
        card("Nodes", this.contact, this.nodes),
        card("Recent faults", h("span", { class: "muted" }, "the last 100 calls that ended in an error of the gateway's"), this.faults),
        card("Settings in force", null, this.settings.element),
      ),
    );
  }

  stop() {
    clearTimeout(this.timer);
  }

  async poll() {
    try {
      if (!document.hidden || !this.shown) {
        const [gateway, nodes] = await Promise.all([get("gateway", { signal: this.signal }), get("nodes", { signal: this.signal })]);
        this.show(gateway, nodes);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!this.shown || error.status) return void fill(this.root, h("div", { class: "head" }, h("h1", {}, "Gateway")), trouble(error));
    }
    this.timer = setTimeout(() => this.poll(), PERIOD_MS);
  }

  show(gateway, nodes) {
    this.shown = true;
    fill(this.head, badge(gateway.status), h("span", { class: "badge plain" }, `version ${gateway.version}`), gateway.suspects_itself ? h("span", { class: "badge warn" }, "suspects its own network") : null);
    fill(this.process, facts([
      ["Version", `${gateway.version}, Python ${gateway.python}`],
      ["Phase", gateway.phase],
      ["Running for", `${age(gateway.uptime_seconds)}, since ${time(gateway.started_at)}`],
      ["Host, process", `${gateway.host}, ${gateway.pid}`],
      ...Object.entries(gateway.addresses).map(([name, address]) => [name === "api" ? "Calls and REST" : "Metrics", h("code", {}, address)]),
      ["You are", gateway.caller.authenticated ? gateway.caller.name : `${gateway.caller.name} (authentication is off)`],
    ]));
    fill(this.limits, h("ul", { class: "limits" }, gateway.limits.map(limit)));
    fill(this.contact, nodes.connected ? null : h("span", { class: "badge bad" }, "no contact with the store"));
    fill(this.nodes, nodeTable(nodes));
    fill(this.faults, faults(gateway.faults));
    this.settings.update(gateway.settings);
  }
}

function limit({ name, setting, used, limit: most, unit }) {
  const part = most ? used / most : 0;
  const kind = part > FULL ? "bad" : part > BUSY ? "warn" : "";
  const text = `${number(used)}${most ? ` of ${number(most)}` : setting ? ", no limit" : ""}${unit ? ` ${unit}` : ""}`;
  return h("li", {},
    h("div", { class: "limit-head" }, h("span", {}, name, setting ? h("code", { class: "muted" }, ` ${setting}`) : null), h("span", { class: `number ${kind ? `${kind}-text` : ""}` }, text)),
    most ? h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: `fill ${kind}`, style: { width: `${Math.min(100, part * 100).toFixed(1)}%` } })) : null,
  );
}

const FAULT_COLUMNS = ["Time", "Reason", "Agent", "Method", "Outcome", "Took", "Caller", "Request"];

function faults(list) {
  if (!list.length) return h("p", { class: "muted" }, "None.");
  return scrolling("Recent faults", FAULT_COLUMNS, list.map((one) => [
    h("span", { class: "number" }, time(one.time)),
    h("code", { class: "bad-text" }, one.reason),
    one.agent ? h("a", { href: `#/agents/${encodeURIComponent(one.agent)}` }, one.agent) : "–",
    one.method || "–",
    one.outcome.replaceAll("_", " "),
    milliseconds(one.duration_ms),
    one.caller,
    h("code", { class: "muted" }, one.request_id),
  ]));
}

const NODE_COLUMNS = ["Node", "Host, process", "Version", "Running for", "Address", "Calls", "Streams", "Agents", "Checked by it"];

function nodeTable({ node: own, nodes }) {
  return scrolling("Nodes", NODE_COLUMNS, nodes.map((one) => [
    [h("code", {}, one.id), one.id === own ? h("span", { class: "badge info plain" }, "this one") : null],
    `${one.host}, ${one.pid}`,
    one.version,
    age((Date.now() - Date.parse(one.started_at)) / 1000),
    h("code", {}, one.address),
    number(one.load.calls),
    number(one.load.streams),
    number(one.load.agents),
    one.checking ? number(one.load.checked) : "checks none",
  ]));
}

function scrolling(label, columns, rows) {
  return h("div", { class: "scroll tall", tabIndex: 0, role: "region", "aria-label": `Table: ${label}` },
    h("table", { class: `table ${label.split(" ").at(-1).toLowerCase()}` },
      h("thead", {}, h("tr", {}, columns.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((one) => h("td", {}, one))))),
    ),
  );
}

/** A long name may break behind a dot or an underscore. */
const breaking = (name) => name.split(/(?<=[._])/).flatMap((part, index) => (index ? [h("wbr"), part] : [part]));

/** Every setting, and those that somebody has set. */
class Settings {
  constructor() {
    this.list = [];
    this.search = h("input", { type: "search", placeholder: "Name or value", on: { input: () => this.show() } });
    this.changed = h("input", { type: "checkbox", on: { change: () => this.show() } });
    this.place = h("div");
    const search = field("Find a setting", this.search);
    search.classList.add("grow");
    this.element = h("div", { class: "stack" }, h("div", { class: "toolbar" }, search, h("label", { class: "choice" }, this.changed, "Only those that are not the default")), this.place);
  }

  update(list) {
    const known = JSON.stringify(list);
    if (known === this.known) return;
    this.known = known;
    this.list = list;
    this.show();
  }

  show() {
    if (this.list === null) return void fill(this.place, h("p", { class: "note warn" }, "The policy shows settings only to those who may administer."));
    const word = this.search.value.trim().toLowerCase();
    const found = this.list.filter((one) => (!this.changed.checked || !one.default) && `${one.name} ${JSON.stringify(one.value)}`.toLowerCase().includes(word));
    if (!found.length) return void fill(this.place, h("p", { class: "muted" }, this.changed.checked && !word ? "Everything is at its default." : "No setting is like that."));
    fill(this.place, scrolling("Settings", ["Setting", "Value", "Origin"], found.map((one) => [
      h("code", {}, breaking(one.name)),
      h("code", { class: "value" }, typeof one.value === "string" ? one.value : JSON.stringify(one.value)),
      one.default ? h("span", { class: "muted" }, "default") : h("span", { class: "badge info plain" }, "set"),
    ])));
  }
}
