// One agent: how it is and was, what it says of itself, and how to call it.

import { ApiError, get, post } from "./api.js";
import { cardTabs } from "./cards.js";
import { fill, h, say } from "./dom.js";
import { age, milliseconds, number, percent, time } from "./format.js";
import { evidence, ladder } from "./ladder.js";
import { byClass, failed, total } from "./outcomes.js";
import { Plot } from "./plots.js";
import { curl, javascript, python, versionsOf } from "./snippets.js";
import { badge, card, copyButton, code, tabs, tone, trouble, worded } from "./ui.js";

const AGENT_ID = /^[a-z0-9][a-z0-9-]{0,126}[a-z0-9]$/;
const PERIOD_MS = 2000;
const LIVE_SLOTS = 150;
const TRANSITIONS = 15;
const BECAUSE = { check: "by a check", calls: "by callers' calls", trial: "by a trial call" };

/** See app.js for what a view is. */
export function mount(root, { params, feed, signal, toast }) {
  const [id] = params;
  if (params.length !== 1 || !AGENT_ID.test(id)) {
    fill(root, back(), h("p", { class: "note bad", role: "alert" }, `This is no agent's id: ${params.join("/").slice(0, 200)}`));
    return () => {};
  }
  const page = new Page(root, id, signal, toast);
  const unlisten = feed.listen((told) => page.heard(told));
  page.start();
  return () => {
    unlisten();
    page.stop();
  };
}

const back = () => h("p", { class: "crumb" }, h("a", { href: "#/agents" }, "← Agents"));

class Page {
  constructor(root, id, signal, toast) {
    Object.assign(this, { root, id, signal, toast });
    this.path = `agents/${id}`;
    this.status = h("span", { class: "row", role: "status" });
    this.name = h("p", { class: "muted" });
    this.gone = h("p", { class: "note bad", role: "alert", hidden: true }, "It is not registered (any more): a registration ends when heartbeats stop.");
    this.check = h("button", { class: "button primary", type: "button", on: { click: () => this.checkNow() } }, "Check now");
    this.tiles = Object.fromEntries(["Heartbeat", "Calls/s", "Errors, 30 s", "p50", "p95", "Open streams", "Calls so far"].map((title) => [title, h("span", { class: "value number" }, "–")]));
    this.ladder = h("div");
    this.evidence = h("div");
    this.transitions = h("div");
    this.cards = h("div");
    this.snippets = h("div");
    this.history = new Plot({
      label: "Last 100 checks",
      lines: [{ name: "latency", kind: "a" }, { name: "first byte", kind: "b" }],
      most: 100,
      strip: true,
      format: milliseconds,
      describe: (point) => point.words,
    });
    this.latency = new Plot({
      label: "Latency of calls",
      lines: [{ name: "p95", kind: "a" }, { name: "p50", kind: "b" }],
      most: LIVE_SLOTS,
      format: milliseconds,
      describe: (point) => `${time(point.at)}: p50 ${milliseconds(point.values[1])}, p95 ${milliseconds(point.values[0])}`,
    });
    this.errors = new Plot({
      label: "Calls and errors per second",
      lines: [{ name: "calls/s", kind: "b" }, { name: "errors/s", kind: "bad" }],
      most: LIVE_SLOTS,
      format: number,
      describe: (point) => `${time(point.at)}: ${number(point.values[0])} calls/s, ${number(point.values[1])} errors/s${point.classes ? ` (${point.classes} in 30 s)` : ""}`,
    });
    this.live = [];
    this.records = [];
    this.drift = [];
  }

  start() {
    const tiles = Object.entries(this.tiles).map(([title, value]) => h("div", { class: "tile" }, value, h("span", { class: "title" }, title)));
    const tryIt = h("a", { class: "button", href: `#/try?agent=${this.id}` }, "Try it");
    const handOff = h("a", { class: "button", href: `#/handoff?agent=${this.id}` }, "Hand off");
    fill(
      this.root,
      back(),
      h("div", { class: "head" }, h("h1", {}, this.id), this.status, h("span", { class: "grow" }), h("span", { class: "row" }, tryIt, handOff, this.check)),
      this.name,
      this.gone,
      h("div", { class: "tiles seven" }, tiles),
      h("div", { class: "split" },
        h("div", { class: "stack" }, card("Last check", null, this.ladder), card("Routing", null, this.evidence, this.transitions), this.snippets),
        h("div", { class: "stack" }, card("Last 100 checks", null, this.history.element), card("Calls, since this page was opened", null, this.latency.element, this.errors.element)),
      ),
      h("div", { class: "below" }, this.cards),
    );
    this.readAgent();
    this.readHealth();
    this.poll();
  }

  stop() {
    clearTimeout(this.timer);
    for (const plot of [this.history, this.latency, this.errors]) plot.stop();
  }

  heard({ event, data }) {
    if (event === "resync") {
      this.readAgent();
      this.readHealth();
    }
    if (data.agent_id !== this.id) return;
    if (event === "health") this.readHealth();
    if (event !== "registry") return;
    const left = data.change === "removed" || data.change === "expired";
    this.gone.hidden = !left;
    if (!left) {
      this.readAgent();
      clearTimeout(this.timer);
      this.poll();
    }
  }

  // -- reading

  async readAgent() {
    try {
      const registered = await get(this.path, { signal: this.signal });
      delete registered.health;
      say(this.name, [registered.name, registered.description].filter(Boolean).join(" — "));
      this.registered = registered;
      await this.readCards();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404) this.gone.hidden = false;
      else fill(this.cards, trouble(error));
    }
  }

  async readCards() {
    const or = (error) => {
      if (error.name === "AbortError") throw error;
      return error;
    };
    const [served, shown] = await Promise.all([
      get(`a2a/${this.id}/.well-known/agent-card.json`, { signal: this.signal }).catch(or),
      get(`${this.path}/health/card`, { signal: this.signal }).catch(or),
    ]);
    const published = shown instanceof ApiError
      ? "Agents are not checked here (health.enable), so nobody has looked for it."
      : (shown.published ?? (shown.is_published ? "It publishes one that is too large to be kept, or another node has read it." : "It publishes none, as far as checks have seen."));
    const drift = shown.drift ?? [];
    const own = served instanceof ApiError ? `It could not be read: ${served.message}` : served;
    fill(this.cards, cardTabs({ registered: this.registered, published, served: own }, drift));
    this.showSnippets(versionsOf(served instanceof ApiError ? this.registered : served));
  }

  async readHealth() {
    try {
      const [health, history] = await Promise.all([
        get(`${this.path}/health`, { signal: this.signal }),
        get(`${this.path}/health/history`, { signal: this.signal }),
      ]);
      this.showHealth(health, history.results.reverse());
    } catch (error) {
      if (error.name === "AbortError") return;
      this.check.disabled = true;
      const off = error.status === 404 && this.gone.hidden;
      fill(this.ladder, off ? h("p", { class: "empty" }, "Agents are not checked here (health.enable).") : trouble(error));
    }
  }

  async poll() {
    try {
      if (!document.hidden) this.showStats(await get(`stats/agents/${this.id}`, { signal: this.signal }));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404) this.gone.hidden = false;
      if ([401, 403].includes(error.status)) return void fill(this.root, back(), trouble(error));
    }
    this.timer = setTimeout(() => this.poll(), PERIOD_MS);
  }

  async checkNow() {
    this.check.disabled = true;
    say(this.check, "Checking …");
    try {
      const health = await post(`${this.path}/health/check`, undefined, { signal: this.signal });
      this.toast(`${this.id}: ${worded(health.status)}`);
      await this.readHealth();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.toast(`It could not be checked: ${error.message}`);
    }
    say(this.check, "Check now");
    this.check.disabled = false;
  }

  // -- showing

  showHealth(health, records) {
    this.checkedAt = health.checked_at;
    this.records = records;
    fill(this.status, badge(health.status), h("span", { class: `badge ${tone(health.routing)}` }, `routing: ${worded(health.routing)}`));
    fill(this.ladder, ladder(health));
    fill(this.evidence, evidence(health));
    this.showTransitions(health.last_transition);
    this.history.set(records.map((one) => ({ values: [one.latency_ms, one.first_byte_ms ?? null], tone: tone(one.status), below: tone(one.routing), words: told(one) })));
    if (health.drift.join() !== this.drift.join()) {
      this.drift = health.drift;
      if (this.registered) this.readCards().catch(() => {});
    }
  }

  showTransitions(last) {
    const changes = [];
    for (let index = 1; index < this.records.length; index++) {
      const [before, after] = [this.records[index - 1], this.records[index]];
      if (before.routing !== after.routing) changes.push({ at: after.at, from: before.routing, to: after.routing, code: after.code });
      else if (before.status !== after.status) changes.push({ at: after.at, from: before.status, to: after.status, code: after.code });
    }
    const newest = changes.at(-1);
    if (last && last.to !== newest?.to) changes.push(last);
    else if (last && newest) newest.because = last.because;
    changes.reverse();
    fill(
      this.transitions,
      h("h3", { class: "sub-title" }, "Transitions"),
      changes.length
        ? h("ol", { class: "transitions" }, changes.slice(0, TRANSITIONS).map((one) =>
            h("li", {}, h("time", { class: "number muted", dateTime: one.at }, time(one.at)), badge(one.from), h("span", { "aria-label": "to" }, "→"), badge(one.to), h("span", { class: "muted" }, [BECAUSE[one.because], one.code].filter(Boolean).join(" · ")))))
        : h("p", { class: "muted" }, "None among the last 100 checks."),
    );
  }

  showStats({ at, agent, totals, window_seconds: seconds }) {
    const bad = failed(agent.outcomes);
    const since = (Date.parse(at) - Date.parse(agent.last_seen)) / 1000;
    const { tiles } = this;
    this.gone.hidden = true;
    say(tiles.Heartbeat, age(since));
    say(tiles["Calls/s"], number(agent.calls_per_second));
    say(tiles["Errors, 30 s"], seconds ? percent(bad, total(agent.outcomes)) : "–");
    tiles["Errors, 30 s"].title = byClass(agent.outcomes);
    say(tiles.p50, milliseconds(agent.p50_ms));
    say(tiles.p95, milliseconds(agent.p95_ms));
    say(tiles["Open streams"], agent.open_streams);
    say(tiles["Calls so far"], number(totals.calls));
    if (agent.checked_at !== this.checkedAt) this.readHealth();
    if (!seconds || this.live.at(-1)?.at === at) return;
    const wrong = seconds ? bad / Math.min(30, seconds) : null;
    this.live.push({ at, latency: [agent.p95_ms, agent.p50_ms], calls: [agent.calls_per_second, wrong], classes: byClass(agent.outcomes) });
    this.live = this.live.slice(-LIVE_SLOTS);
    this.latency.set(this.live.map((one) => ({ at: one.at, values: one.latency })));
    this.errors.set(this.live.map((one) => ({ at: one.at, values: one.calls, classes: one.classes })));
  }

  showSnippets(versions) {
    const [version] = versions;
    const texts = [
      ["curl", () => curl(this.id, version, false)],
      ["curl, stream", () => curl(this.id, version, true)],
      ["Python SDK", () => python(this.id)],
      ["JavaScript SDK", () => javascript(this.id)],
    ];
    fill(this.snippets, tabs("Call it", texts.map(([title, text]) => [title, () => [h("div", { class: "row end" }, copyButton(text)), code(text(), title)]])));
  }
}

function told(one) {
  const found = one.code ? ` (${[one.code, one.reason].filter(Boolean).join(" · ")})` : "";
  return `${time(one.at)}: ${worded(one.status)}${found}, ${worded(one.routing)}; latency ${milliseconds(one.latency_ms)}, first byte ${milliseconds(one.first_byte_ms)}, all checks ${milliseconds(one.duration_ms)}`;
}
