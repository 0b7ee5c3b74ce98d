// The gateway's feed of changes (GET /events): one connection for the whole page, taken up again where it broke.

import { events, onToken } from "./api.js";

const RETRY_MS = [1000, 2000, 4000, 8000, 15000];

/** Connects while the page is shown; `state` is told "live", "lost" or "off". */
export class Feed {
  constructor(state) {
    this.state = state;
    this.listeners = new Set();
    this.lastId = undefined;
    this.failures = 0;
    this.stopped = true;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
    onToken(() => this.restart());
  }

  /** Be told of every event: ({event, data}); `event` is registry, health, suspicion or resync. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start() {
    if (!this.stopped) return;
    this.stopped = false;
    this.run();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  restart() {
    this.stop();
    this.lastId = undefined;
    this.failures = 0;
    this.start();
  }

  async run() {
    const abort = (this.abort = new AbortController());
    try {
      await events("events", {
        signal: abort.signal,
        headers: this.lastId ? { "Last-Event-ID": this.lastId } : {},
        opened: (answer) => answer.ok && this.opened(),
        take: (event) => this.take(event),
      });
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error.status === 401 || error.status === 403) {
        this.stopped = true; // a token, or another one, starts it again
        this.state("off");
        return;
      }
    }
    if (abort.signal.aborted) return;
    this.state("lost");
    const wait = RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)];
    this.timer = setTimeout(() => this.run(), wait);
  }

  opened() {
    if (this.failures && !this.lastId) this.tell({ event: "resync", data: {} });
    this.failures = 0;
    this.state("live");
  }

  take({ id, event, data }) {
    if (id) this.lastId = id;
    let parsed = {};
    try {
      parsed = JSON.parse(data);
    } catch {
      return;
    }
    this.tell({ event, data: parsed });
  }

  tell(told) {
    for (const listener of [...this.listeners]) listener(told);
  }
}
