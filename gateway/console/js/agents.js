// All agents: how they are, how fast they answer, and which of them need somebody.

import { url } from "./api.js";
import { fill, h, say } from "./dom.js";
import { age, milliseconds, number, percent } from "./format.js";
import { byClass, failed, total } from "./outcomes.js";
import { AgentStore } from "./store.js";
import { badge, field, options, tone, trouble, worded } from "./ui.js";
import { virtualRows } from "./virtual.js";

const SEVERITY = { UNREACHABLE: 5, UNHEALTHY: 4, MISCONFIGURED: 3, DEGRADED: 2, UNKNOWN: 1, HEALTHY: 0 };
const OUT = { out_of_service: 2, degraded: 1, unchecked: 0, in_service: 0 };
const errorPart = (row) => failed(row.outcomes) / (total(row.outcomes) || Infinity);

/** Columns: title, what is compared, and whether the largest comes first. */
const COLUMNS = {
  agent: { title: "Agent", by: (row) => row.agent_id },
  health: { title: "Health", by: (row) => OUT[row.routing] * 10 + SEVERITY[row.status], down: true },
  routing: { title: "Routing", by: (row) => OUT[row.routing], down: true },
  heartbeat: { title: "Heartbeat", by: (row) => -Date.parse(row.last_seen), down: true },
  rate: { title: "Calls/s", by: (row) => row.calls_per_second ?? -1, down: true, number: true },
  errors: { title: "Errors", by: errorPart, down: true, number: true },
  p50: { title: "p50", by: (row) => row.p50_ms ?? -1, down: true, number: true },
  p95: { title: "p95", by: (row) => row.p95_ms ?? -1, down: true, number: true },
  streams: { title: "Streams", by: (row) => row.open_streams, down: true, number: true },
  protocol: { title: "Protocol", by: (row) => row.protocols.join() },
  skills: { title: "Skills", by: (row) => row.skills.join() },
  owner: { title: "Owner", by: (row) => row.owner },
};
const ROW_HEIGHT = { wide: 52, narrow: 128 };

/** See app.js for what a view is. */
export function mount(root, { feed, query }) {
  const chosen = { text: query.get("q") ?? "", health: query.get("health") ?? "", routing: query.get("routing") ?? "", owner: query.get("owner") ?? "", sort: "health", down: true };
  const narrow = matchMedia("(max-width: 980px)");
  const tiles = new Tiles((filter) => choose(filter));
  const filters = new Filters(chosen, () => sift());
  const heading = columnHeads(chosen, () => sift());
  const rows = virtualRows({
    label: "Agents",
    height: () => (narrow.matches ? ROW_HEIGHT.narrow : ROW_HEIGHT.wide),
    create: (id) => new Row(id, store).element,
    update: (element, id) => element.row.update(store.agents.get(id)),
  });
  const table = h("div", { class: "agents", role: "table", "aria-label": "Agents" }, heading.element, rows.body);
  const note = h("div", { class: "note warn", role: "alert", hidden: true }, "More than half of the agents fail at once: the gateway suspects its own network and takes no agent out of service.");
  const place = h("div", {}, h("p", { class: "empty" }, "Reading …"));
  fill(root, h("div", { class: "head" }, h("h1", {}, "Agents"), filters.count), tiles.element, note, filters.element, place);

  const store = new AgentStore(feed, { changed, failed: (error) => {
    if (error.status === 404) fill(place, h("p", { class: "empty card" }, "There are no agents here: a2a.enable is off."));
    else if (!store.loaded || error.status) fill(place, trouble(error));
  } });
  let asked = 0;

  function changed() {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      note.hidden = !store.suspects;
      tiles.update(store);
      filters.update(store);
      sift();
    });
  }

  function choose(filter) {
    Object.assign(chosen, filter);
    filters.take();
    sift();
  }

  function sift() {
    if (!store.loaded) return;
    const found = select([...store.agents.values()], chosen);
    say(filters.count, found.length === store.agents.size ? `${number(found.length)} registered` : `${number(found.length)} of ${number(store.agents.size)}`);
    tiles.press(chosen);
    heading.update();
    table.setAttribute("aria-rowcount", String(found.length + 1));
    const shown = store.agents.size === 0 ? nobody() : found.length ? table : h("p", { class: "empty card" }, "No agent is like that.");
    if (place.firstElementChild !== shown) fill(place, shown);
    rows.show(found.map((row) => row.agent_id));
  }

  const clock = setInterval(() => rows.refresh(), 1000);
  const keys = (event) => {
    if (event.key !== "/" || event.target.closest("input, textarea, select, dialog")) return;
    event.preventDefault();
    filters.search.focus();
  };
  addEventListener("keydown", keys);
  return () => {
    clearInterval(clock);
    removeEventListener("keydown", keys);
    cancelAnimationFrame(asked);
    rows.stop();
    store.stop();
  };
}

/** Sift and sort. */
export function select(rows, chosen) {
  const words = chosen.text.toLowerCase().split(/\s+/).filter((word) => word);
  const found = rows.filter(
    (row) =>
      (!chosen.health || row.status === chosen.health) &&
      (!chosen.routing || row.routing === chosen.routing) &&
      (!chosen.owner || row.owner === chosen.owner) &&
      words.every((word) => text(row).includes(word)),
  );
  const { by } = COLUMNS[chosen.sort];
  const sign = chosen.down ? -1 : 1;
  const keyed = found.map((row) => [by(row), row]);
  keyed.sort(([a, one], [b, other]) => (a < b ? -sign : a > b ? sign : one.agent_id < other.agent_id ? -1 : 1));
  return keyed.map(([, row]) => row);
}

const texts = new WeakMap();
function text(row) {
  let found = texts.get(row);
  if (found === undefined) {
    found = [row.agent_id, row.name, row.owner, row.code ?? "", row.status, ...row.protocols, ...row.skills].join(" ").toLowerCase();
    texts.set(row, found);
  }
  return found;
}

function nobody() {
  return h("div", { class: "card empty stack" },
    h("h2", {}, "No agent is registered"),
    h("p", {}, "An agent that registers appears here at once. One to try:"),
    h("p", {}, h("code", {}, `vitalgate demo --gateway ${url("").replace(/\/$/, "")}`)),
  );
}

/** The numbers at the top, each of which sifts. */
class Tiles {
  constructor(choose) {
    this.tiles = [
      ["All", "", {}, () => true],
      ["Healthy", "ok", { health: "HEALTHY" }, (row) => row.status === "HEALTHY"],
      ["Degraded", "warn", { health: "DEGRADED" }, (row) => row.status === "DEGRADED"],
      ["Unreachable", "bad", { health: "UNREACHABLE" }, (row) => row.status === "UNREACHABLE"],
      ["Out of service", "bad", { routing: "out_of_service" }, (row) => row.routing === "out_of_service"],
    ].map(([title, kind, filter, counts]) => {
      const value = h("span", { class: "value number" }, "–");
      const wanted = { health: "", routing: "", ...filter };
      const element = h("button", { class: `tile ${kind}`, type: "button", "aria-pressed": "false", on: { click: () => choose(wanted) } }, value, h("span", { class: "title" }, title));
      return { element, value, counts, wanted };
    });
    this.rate = h("span", { class: "value number" }, "–");
    this.errors = h("span", { class: "value number" }, "–");
    this.element = h("div", { class: "tiles" },
      this.tiles.map((tile) => tile.element),
      h("div", { class: "tile plain" }, this.rate, h("span", { class: "title" }, "calls/s")),
      h("div", { class: "tile plain" }, this.errors, h("span", { class: "title" }, "errors, 30 s")),
    );
  }

  update(store) {
    const rows = [...store.agents.values()];
    for (const tile of this.tiles) {
      const count = rows.filter(tile.counts).length;
      say(tile.value, number(count));
      tile.element.dataset.count = count;
    }
    const outcomes = {};
    for (const row of rows) for (const [name, count] of Object.entries(row.outcomes)) outcomes[name] = (outcomes[name] ?? 0) + count;
    say(this.rate, number(store.window ? rows.reduce((sum, row) => sum + (row.calls_per_second ?? 0), 0) : null));
    say(this.errors, store.window ? percent(failed(outcomes), total(outcomes)) : "–");
  }

  press(chosen) {
    for (const { element, wanted } of this.tiles) {
      element.setAttribute("aria-pressed", String(chosen.health === wanted.health && chosen.routing === wanted.routing));
    }
  }
}

class Filters {
  constructor(chosen, changed) {
    this.chosen = chosen;
    this.owners = "";
    this.count = h("span", { class: "muted number", role: "status" });
    this.search = h("input", { type: "search", id: "search", placeholder: "Id, name, skill, reason …   ( / )", value: chosen.text });
    this.search.addEventListener("input", () => ((chosen.text = this.search.value), changed()));
    this.health = this.select("health", [["", "Any"], ...Object.keys(SEVERITY).map((word) => [word, worded(word)])], changed);
    this.routing = this.select("routing", [["", "Any"], ...Object.keys(OUT).map((word) => [word, worded(word)])], changed);
    this.owner = this.select("owner", [["", "Anybody"]], changed);
    this.sort = h("select", { on: { change: () => {
      chosen.sort = this.sort.value;
      chosen.down = Boolean(COLUMNS[chosen.sort].down);
      changed();
    } } }, options(Object.entries(COLUMNS).map(([name, { title }]) => [name, title]), chosen.sort));
    const search = field("Search", this.search);
    search.classList.add("grow");
    const sort = field("Sort", this.sort);
    sort.classList.add("only-narrow");
    this.element = h("div", { class: "toolbar filters", role: "search" }, search, field("Health", this.health), field("Routing", this.routing), field("Owner", this.owner), sort);
  }

  select(name, choices, changed) {
    const element = h("select", {}, options(choices, this.chosen[name]));
    element.addEventListener("change", () => ((this.chosen[name] = element.value), changed()));
    return element;
  }

  take() {
    this.health.value = this.chosen.health;
    this.routing.value = this.chosen.routing;
  }

  update(store) {
    const owners = [...new Set([...store.agents.values()].map((row) => row.owner))].sort();
    if (owners.join("\n") === this.owners) return;
    this.owners = owners.join("\n");
    if (this.chosen.owner && !owners.includes(this.chosen.owner)) owners.push(this.chosen.owner);
    fill(this.owner, options([["", "Anybody"], ...owners], this.chosen.owner));
  }
}

function columnHeads(chosen, changed) {
  const cells = Object.entries(COLUMNS).map(([name, column]) => {
    const button = h("button", { type: "button", on: { click: () => {
      chosen.down = chosen.sort === name ? !chosen.down : Boolean(column.down);
      chosen.sort = name;
      changed();
    } } }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }));
    return [name, h("div", { role: "columnheader", class: `c-${name}${column.number ? " number" : ""}` }, button)];
  });
  return {
    element: h("div", { class: "row-grid heads", role: "row", "aria-rowindex": "1" }, cells.map(([, cell]) => cell)),
    update() {
      for (const [name, cell] of cells) {
        if (name === chosen.sort) cell.setAttribute("aria-sort", chosen.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      }
    },
  };
}

/** One row of the table; it touches only what has changed. */
class Row {
  constructor(id, store) {
    this.store = store;
    this.cells = Object.fromEntries(
      Object.entries(COLUMNS).map(([name, { title, number: right }]) => [name, h("div", { role: "cell", class: `c-${name}${right ? " number" : ""}`, dataset: { label: title } })]),
    );
    this.name = h("span", { class: "sub" });
    this.reason = h("span", { class: "sub" });
    this.health = h("span");
    this.age = h("span", { class: "number" });
    this.fill = h("span", { class: "fill" });
    this.meter = h("span", { class: "meter", "aria-hidden": "true" }, this.fill);
    this.errorRate = h("span");
    this.classes = h("span", { class: "sub" });
    fill(this.cells.agent, h("a", { href: `#/agents/${encodeURIComponent(id)}` }, id), this.name);
    fill(this.cells.health, this.health, this.reason);
    fill(this.cells.heartbeat, this.age, this.meter);
    fill(this.cells.errors, this.errorRate, this.classes);
    this.element = h("div", { class: "row-grid agent-row", role: "row", dataset: { id } }, Object.values(this.cells));
    this.element.row = this;
  }

  update(row) {
    if (!row) return;
    this.beat(row);
    if (row === this.shown) return;
    this.shown = row;
    const { cells } = this;
    say(this.name, row.name);
    fill(this.health, badge(row.status));
    say(this.reason, row.code ? `${row.code}${row.reason ? ` · ${row.reason}` : ""}` : "");
    fill(cells.routing, h("span", { class: `routing ${tone(row.routing)}` }, worded(row.routing)));
    say(cells.rate, number(row.calls_per_second));
    this.errors(row.outcomes);
    say(cells.p50, milliseconds(row.p50_ms));
    say(cells.p95, milliseconds(row.p95_ms));
    say(cells.streams, row.open_streams);
    cells.streams.classList.toggle("zero", !row.open_streams);
    cells.rate.classList.toggle("zero", !row.calls_per_second);
    say(cells.protocol, row.protocols.join(", ") || "–");
    say(cells.skills, row.skills.join(", ") || "–");
    cells.skills.title = row.skills.join("\n");
    say(cells.owner, row.owner);
    cells.owner.title = row.owner;
  }

  errors(outcomes) {
    const bad = failed(outcomes);
    say(this.errorRate, percent(bad, total(outcomes)));
    this.errorRate.className = bad ? "bad-text" : "zero";
    say(this.classes, byClass(outcomes));
  }

  beat(row) {
    const seconds = this.store.since(row.last_seen);
    const part = Math.min(1, Math.max(0, seconds / (this.store.ttl || Infinity)));
    say(this.age, `${age(seconds)} / ${age(this.store.ttl)}`);
    this.fill.style.setProperty("width", `${Math.round(part * 100)}%`);
    this.fill.className = `fill ${part > 0.9 ? "bad" : part > 0.66 ? "warn" : ""}`;
  }
}
