// All agents as the gateway sees them: read once, then by differences (GET /stats/agents), and by the feed at once.

import { get } from "./api.js";

const PERIOD_MS = 2000;

/** Keeps `agents` (id → row) up to date for as long as it runs; `changed()` after each change, `failed(error)` else. */
export class AgentStore {
  constructor(feed, { changed, failed }) {
    this.agents = new Map();
    this.ttl = 0;
    this.window = 0;
    this.suspects = false;
    this.offset = 0;
    this.loaded = false;
    this.version = "";
    this.changed = changed;
    this.failed = failed;
    this.unlisten = feed.listen((told) => this.heard(told));
    this.shown = () => document.hidden || this.soon();
    document.addEventListener("visibilitychange", this.shown);
    this.abort = new AbortController();
    this.poll();
  }

  stop() {
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.shown);
    this.unlisten();
    this.abort.abort();
  }

  /** Seconds since a timestamp of the gateway's, by its own clock. */
  since(timestamp) {
    return (Date.now() + this.offset - Date.parse(timestamp)) / 1000;
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), 0);
  }

  async poll() {
    clearTimeout(this.timer);
    if (document.hidden && this.loaded) return; // the page's return starts it again
    try {
      const view = await get(`stats/agents${this.version ? `?since=${encodeURIComponent(this.version)}` : ""}`, { signal: this.abort.signal });
      this.take(view);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.failed(error);
      if (error.status === 401 || error.status === 403 || error.status === 404) return;
    }
    if (!this.abort.signal.aborted) this.timer = setTimeout(() => this.poll(), PERIOD_MS);
  }

  take(view) {
    this.version = view.version;
    this.ttl = view.ttl_seconds;
    this.window = view.window_seconds;
    this.suspects = view.suspects_itself;
    this.offset = Date.parse(view.at) - Date.now();
    if (view.complete) this.agents.clear();
    for (const id of view.gone) this.agents.delete(id);
    for (const row of view.agents) this.agents.set(row.agent_id, row);
    this.loaded = true;
    this.changed();
  }

  heard({ event, data }) {
    if (event === "resync") {
      this.version = "";
      this.soon();
    } else if (event === "suspicion") {
      this.suspects = data.suspects_itself;
      this.changed();
    } else if (event === "registry" && (data.change === "removed" || data.change === "expired")) {
      if (this.agents.delete(data.agent_id)) this.changed();
    } else if (event === "health") {
      const row = this.agents.get(data.agent_id);
      if (!row) return;
      this.agents.set(data.agent_id, { ...row, status: data.status, routing: data.routing });
      this.changed();
    }
  }
}
