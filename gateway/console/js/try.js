// Calling an agent through the gateway, and seeing everything that comes back as it comes.

import { EventParser, agentUrl, get, hasToken, send } from "./api.js";
import { fill, h, say } from "./dom.js";
import { milliseconds, pretty } from "./format.js";
import { SPOKEN, request, versionsOf } from "./snippets.js";
import { card, code, copyButton, facts, field, options } from "./ui.js";

const AGENT_ID = /^[a-z0-9][a-z0-9-]{0,126}[a-z0-9]$/;
const SHOWN_BYTES = 256 * 1024;
const SHOWN_EVENTS = 500;
const SUGGESTED = 2000;

/** See app.js for what a view is. */
export function mount(root, { query, signal }) {
  const page = new Page(root, query.get("agent") ?? "", signal);
  page.start();
  return () => page.cancel();
}

class Page {
  constructor(root, agent, signal) {
    this.root = root;
    this.signal = signal;
    this.edited = false;
    this.names = h("datalist", { id: "agent-ids" });
    this.agent = h("input", { value: agent, required: true, autocomplete: "off", spellcheck: false, placeholder: "agent id", on: { change: () => this.readCard() } });
    this.agent.setAttribute("list", "agent-ids");
    this.version = h("select", { on: { change: () => this.write() } }, options([["1.0", "1.0"], ["0.3", "0.3"]], "0.3"));
    this.how = h("select", { on: { change: () => this.write() } }, options([["send", "Whole answer"], ["stream", "Stream of events"]], "send"));
    this.text = h("textarea", { rows: 3, value: "hello", on: { input: () => this.write() } });
    this.body = h("textarea", { rows: 12, spellcheck: false, on: { input: () => this.edit() } });
    this.anew = h("button", { class: "button small", type: "button", hidden: true, on: { click: () => this.write(true) } }, "Write it anew");
    this.go = h("button", { class: "button primary", type: "submit" }, "Send");
    this.stop = h("button", { class: "button danger small", type: "button", disabled: true, on: { click: () => this.cancel() } }, "Cancel");
    this.unlisted = h("p", { class: "muted", role: "status" });
    this.hint = h("span", { class: "muted", role: "status" });
    this.sent = h("div");
    this.result = h("div", { class: "stack" }, h("p", { class: "empty card" }, "What comes back appears here, as it comes."));
  }

  start() {
    const form = h("form", { class: "stack", on: { submit: (event) => {
      event.preventDefault();
      this.call();
    } } },
      h("div", { class: "fields" }, field("Agent", this.agent), field("Protocol", this.version), field("Answer", this.how)),
      this.names,
      this.unlisted,
      field("Message", this.text),
      h("div", { class: "row" }, this.go, this.anew, this.hint),
      field("Request body", this.body, "What is sent, byte for byte. Edit it as you like: the gateway judges it as any caller's."),
    );
    fill(this.root, h("div", { class: "head" }, h("h1", {}, "Try it"), h("span", { class: "muted" }, "A call through this gateway, as any client would make it.")), h("div", { class: "split tried" }, card("Request", null, form), this.result, this.sent));
    this.write(true);
    this.suggest();
    if (this.agent.value) this.readCard();
  }

  async suggest() {
    try {
      const { agents } = await get("stats/agents", { signal: this.signal });
      fill(this.names, agents.slice(0, SUGGESTED).map((row) => h("option", { value: row.agent_id }, row.name)));
      if (!this.agent.value && agents.length && document.activeElement !== this.agent) {
        const best = agents.find((row) => row.status === "HEALTHY") ?? agents[0];
        this.agent.value = best.agent_id;
        this.readCard();
      }
    } catch (error) {
      if (error.status === 403) say(this.unlisted, "You may not list agents: type an id.");
    }
  }

  /** Find out which protocol the agent is served in. */
  async readCard() {
    const id = this.agent.value;
    if (!AGENT_ID.test(id)) return say(this.hint, id ? "That is no agent's id: 2 to 128 of a-z, 0-9 and inner hyphens." : "");
    try {
      const served = await get(`a2a/${id}/.well-known/agent-card.json`, { signal: this.signal });
      const versions = versionsOf(served);
      fill(this.version, options(versions, versions[0]));
      say(this.hint, "");
      this.write();
    } catch (error) {
      if (error.name !== "AbortError") say(this.hint, error.status === 404 ? "No such agent is registered." : "");
    }
  }

  write(anew = false) {
    if (this.edited && !anew) return;
    this.edited = false;
    this.anew.hidden = true;
    this.body.value = pretty(request(this.version.value, { stream: this.how.value === "stream", text: this.text.value }));
  }

  edit() {
    this.edited = true;
    this.anew.hidden = false;
  }

  cancel() {
    this.abort?.abort();
  }

  // -- calling

  async call() {
    const id = this.agent.value;
    if (!AGENT_ID.test(id)) return void this.readCard();
    this.cancel();
    const abort = (this.abort = new AbortController());
    const headers = { "Content-Type": "application/json", ...SPOKEN[this.version.value].headers };
    if (this.how.value === "stream") headers.Accept = "text/event-stream";
    const seen = new Seen(id, headers, this.body.value, this.stop);
    fill(this.result, seen.came);
    fill(this.sent, seen.sent);
    if (this.result.getBoundingClientRect().top > innerHeight / 2) this.result.scrollIntoView(); // below the form, on a phone
    this.stop.disabled = false;
    try {
      const answer = await send(`a2a/${id}`, { method: "POST", headers, body: this.body.value, signal: abort.signal });
      seen.head(answer);
      await seen.read(answer);
    } catch (error) {
      seen.end(error.name === "AbortError" ? "cancelled" : `failed: ${error.message}`);
    }
    if (this.abort === abort) this.stop.disabled = true;
    if (!this.edited) this.write(); // another message id for the next one
  }
}

/** What is seen of one call. */
class Seen {
  constructor(id, headers, body, stop) {
    this.began = performance.now();
    this.events = 0;
    this.state = h("span", { class: "badge info" }, "sent");
    this.facts = h("div");
    this.headers = h("div");
    this.list = h("ol", { class: "arrivals", "aria-label": "What came", tabIndex: 0 });
    const shown = hasToken() ? { ...headers, Authorization: "Bearer ••••" } : headers;
    const sent = `POST ${agentUrl(id)}\n${lines(Object.entries(shown))}\n\n${body}`;
    this.came = [card("Answer", h("div", { class: "row" }, stop, this.state), this.facts, this.list), card("Headers", null, this.headers)];
    this.sent = card("As it was sent", copyButton(sent), code(sent, "Bytes of the request"));
    this.tell();
  }

  get spent() {
    return performance.now() - this.began;
  }

  head(answer) {
    this.headAt = this.spent;
    this.status = answer.status;
    this.fault = answer.headers.get("X-Gateway-Error");
    this.stream = (answer.headers.get("Content-Type") ?? "").startsWith("text/event-stream");
    fill(this.headers, code(`HTTP ${answer.status} ${answer.statusText}\n${lines(answer.headers)}`, "Status and headers"));
    this.mark(this.stream ? "open" : "reading", "info");
    this.tell();
  }

  async read(answer) {
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let whole = "";
    const parser = this.stream ? new EventParser((event) => this.arrived(event.raw, event.data)) : null;
    for (let piece; reader && !(piece = await reader.read()).done; ) {
      this.first ??= this.spent;
      if (parser) parser.feed(piece.value);
      else if (whole.length < SHOWN_BYTES) whole += piece.value;
    }
    if (!this.stream) this.arrived(whole.slice(0, SHOWN_BYTES), whole);
    this.end("ended");
  }

  /** Show what came: laid out if it is JSON, and as it was. */
  arrived(raw, data) {
    this.events += 1;
    const at = milliseconds(this.spent);
    let laidOut = null;
    try {
      const value = JSON.parse(data);
      this.error ||= Boolean(value?.error);
      laidOut = pretty(value);
    } catch {
      // not JSON: as it came
    }
    const text = h("pre", { class: "arrival" }, laidOut ?? raw);
    const toggle = laidOut ? h("button", { class: "button small quiet", type: "button", "aria-pressed": "false" }, "Raw") : null;
    toggle?.addEventListener("click", () => {
      const now = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(now));
      say(text, now ? raw : laidOut);
    });
    const { list } = this;
    const following = list.scrollTop + list.clientHeight > list.scrollHeight - 40;
    list.append(h("li", {}, h("div", { class: "arrival-head" }, h("span", { class: "number muted" }, `+${at}`), h("span", { class: "muted" }, this.stream ? `event ${this.events}` : "body"), h("span", { class: "grow" }), toggle), text));
    while (list.childElementCount > SHOWN_EVENTS) list.firstElementChild.remove();
    if (following && this.stream) list.scrollTop = list.scrollHeight; // whoever has scrolled up stays there
    this.tell();
  }

  /** `how`: "ended" where it all came, "cancelled", or "failed: " and why; an error that came is a failure, too. */
  end(how) {
    this.ended = this.spent;
    if (how === "ended" && (this.error || this.fault || this.status >= 400)) how = "failed";
    this.mark(how, how === "ended" ? "ok" : how === "cancelled" ? "warn" : "bad");
    this.tell();
  }

  mark(text, kind) {
    this.state.className = `badge breaks ${kind}`; // a reason may be long
    say(this.state, text);
  }

  tell() {
    fill(this.facts, facts([
      ["Status", this.status ? String(this.status) : "–"],
      this.fault ? ["Gateway's error", h("span", {}, h("code", { class: "bad-text" }, this.fault), h("span", { class: "muted" }, " (what to do: ", h("code", {}, `vitalgate explain ${this.fault}`), ")"))] : null,
      ["First byte", milliseconds(this.headAt)],
      this.stream ? ["Events", `${this.events}${this.events > SHOWN_EVENTS ? ` (the last ${SHOWN_EVENTS} are shown)` : ""}`] : null,
      ["In all", milliseconds(this.ended)],
    ]));
  }
}

const lines = (headers) => [...headers].map(([name, value]) => `${name}: ${value}`).join("\n");
