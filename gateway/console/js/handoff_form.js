// The inputs of the handoff inspector: what is asked of POST /handoff/trace.

import { get, send } from "./api.js";
import { fill, h, say } from "./dom.js";
import { field, options } from "./ui.js";

const POLICIES = [["allowlist", "Allowlisted origin"], ["advertised", "Advertised HTTPS"]];
const CREDENTIALS = [["bound", "Peer-bound"], ["broad", "Broad"], ["missing", "Missing"]];
const VERSIONS = [["1.0", "1.0"], ["0.3.0", "0.3.0"]];
const DRY = "dry";
const SEND = "send";
const OWN = "own";
const EDITED = "edited";
/** What the registry adds to a card. */
const ADDED = ["agent_id", "registered_by", "registered_at", "last_seen", "health"];
const SUGGESTED = 50;

/** The form. `changed()` is told of every change, whoever makes it. */
export class Inputs {
  constructor(examples, { changed, signal }) {
    this.examples = examples;
    this.changed = changed;
    this.signal = signal;
    this.build(examples);
    this.element.addEventListener("input", (event) => this.follow(event.target));
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.take(examples.defaults);
  }

  build({ cards, fixtures, deadlines_ms: deadlines }) {
    this.deadlines = deadlines;
    this.source = h("select", {}, options([...cards.map(({ id, label }) => [id, label]), [OWN, "A registered agent's own card"], [EDITED, "Edited"]]));
    this.agents = h("datalist", { id: "handoff-agents" });
    this.agent = h("input", { autocomplete: "off", spellcheck: false, maxLength: 128 });
    this.agent.setAttribute("list", this.agents.id);
    this.card = h("textarea", { rows: 12, spellcheck: false, autocomplete: "off" });
    this.destination = h("input", { inputMode: "url", autocomplete: "off", spellcheck: false });
    this.skill = h("input", { autocomplete: "off", spellcheck: false });
    this.policy = h("select", {}, options(POLICIES));
    this.credential = h("select", {}, options(CREDENTIALS));
    this.version = h("select", {}, options(VERSIONS));
    this.public = h("input", { type: "checkbox" });
    this.text = h("textarea", { rows: 2 });
    this.answer = h(
      "select",
      {},
      h("optgroup", { label: "Fixture" }, options(fixtures.map(({ id, label }) => [id, label]))),
      h("optgroup", { label: "No fixture" }, options([[DRY, "Dry run: none"], [SEND, "Real send to a registered agent"]])),
    );
    this.delay = h("input", { type: "number", min: 0, max: 60000, step: 1, inputMode: "numeric" });
    this.deadline = h("select");
    this.element = this.layout();
  }

  layout() {
    this.fields = {
      agent: named("Registered agent", this.agent, "Type to search."),
      card: named("Agent card", this.card, " "),
      destination: named("Destination", this.destination, "The origin you mean: the one allowed, and the one the credential belongs to."),
      skill: named("Requested skill", this.skill),
      policy: named("Endpoint policy", this.policy),
      credential: named("Credential scope", this.credential),
      protocol_version: named("Protocol version", this.version),
      text: named("Task", this.text),
      "answer.delay_ms": named("Peer delay, ms", this.delay),
      deadline_ms: named("Deadline", this.deadline),
    };
    const fields = this.fields;
    this.alert = h("p", { class: "note bad", role: "alert", hidden: true });
    const admitted = h("label", { class: "choice" }, this.public, "Admit a card that asks for no credential");
    return h(
      "form",
      { class: "handoff-form stack", autocomplete: "off", noValidate: true },
      named("Card from", this.source),
      fields.agent,
      this.agents,
      fields.card,
      fields.destination,
      h("div", { class: "handoff-pairs" }, fields.skill, fields.protocol_version, fields.policy, fields.credential),
      admitted,
      fields.text,
      named("Peer's answer", this.answer),
      h("div", { class: "handoff-pairs" }, fields["answer.delay_ms"], fields.deadline_ms),
      this.alert,
    );
  }

  /** Whether the task is to be really sent. */
  get sending() {
    return this.answer.value === SEND;
  }

  /** Put values in, as a request holds them. */
  take(values) {
    this.card.value = values.card;
    this.destination.value = values.destination;
    this.skill.value = values.skill;
    this.policy.value = values.policy;
    this.credential.value = values.credential;
    this.public.checked = values.public;
    this.version.value = values.protocol_version;
    this.text.value = values.text;
    this.answer.value = values.answer.fixture;
    this.delay.value = values.answer.delay_ms;
    this.offerDeadlines(values.deadline_ms);
    this.show();
  }

  /** The request that asks for the trace. */
  value() {
    return {
      card: this.card.value,
      destination: this.destination.value.trim(),
      skill: this.skill.value,
      policy: this.policy.value,
      credential: this.credential.value,
      public: this.public.checked,
      protocol_version: this.version.value,
      text: this.text.value,
      deadline_ms: Number(this.deadline.value),
      answer: this.answered(),
    };
  }

  answered() {
    if (this.answer.value === DRY) return null;
    if (this.sending) return { agent_id: this.agent.value.trim() };
    return { fixture: this.answer.value, delay_ms: this.delay.value === "" ? -1 : Number(this.delay.value) };
  }

  /** One control has been changed by its user. */
  follow(control) {
    if (control === this.source) this.choose();
    else if (control === this.card) this.source.value = EDITED;
    else if (control === this.agent) {
      this.origin = null;
      this.search();
    }
    else if (control === this.answer) {
      this.offerDeadlines();
      if (this.sending && !this.agents.children.length) this.search();
    }
    this.told();
  }

  /** The trace that there was is not that of these inputs. */
  told() {
    this.complain([], "");
    this.show();
    this.changed();
  }

  show() {
    say(this.fields.card.querySelector(".hint"), this.source.value === OWN ? (this.origin ?? "Name the agent.") : "");
    this.fields.agent.hidden = !this.sending && this.source.value !== OWN;
    this.fields["answer.delay_ms"].hidden = this.sending || this.answer.value === DRY;
    this.fields.deadline_ms.hidden = this.answer.value === DRY;
    this.fields.text.hidden = this.answer.value === DRY;
  }

  offerDeadlines(chosen) {
    const choices = this.deadlines[this.sending ? SEND : "fixture"];
    const kept = chosen ?? Number(this.deadline.value);
    const value = choices.includes(kept) ? kept : choices[this.sending ? choices.length - 1 : 1];
    fill(this.deadline, choices.map((ms) => h("option", { value: ms, selected: ms === value }, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`)));
  }

  choose() {
    const example = this.examples.cards.find(({ id }) => id === this.source.value);
    if (example) this.card.value = example.card;
    else if (this.source.value === OWN) this.search();
  }

  /** Suggest agents; one that is named in full gives its card. */
  async search() {
    const wanted = this.agent.value.trim();
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const found = await get(`agents?limit=${SUGGESTED}&q=${encodeURIComponent(wanted)}`, { signal: this.signal });
      if (turn !== this.turn) return;
      fill(this.agents, found.map((agent) => h("option", { value: agent.agent_id }, agent.name)));
      if (this.source.value !== OWN) return;
      const listed = found.find((agent) => agent.agent_id === wanted);
      const exact = listed ?? (found.length === SUGGESTED && wanted ? await this.lookUp(wanted) : null);
      if (!exact) return;
      const published = await this.published(wanted);
      if (turn === this.turn) this.takeCard(exact, published);
    } catch (error) {
      if (error.name !== "AbortError") this.complain([], `The registered agents could not be read: ${error.message}`);
    }
  }

  /** Begin with a registered agent's own card. */
  start(id) {
    this.source.value = OWN;
    this.agent.value = id;
    this.show();
    this.search();
  }

  /** An agent that is not among those suggested; null if there is none. */
  async lookUp(id) {
    const answer = await send(`agents/${encodeURIComponent(id)}`, { signal: this.signal });
    return answer.ok ? answer.json() : null;
  }

  /** The card that an agent publishes; null where that is not known. */
  async published(id) {
    try {
      return (await get(`agents/${encodeURIComponent(id)}/health/card`, { signal: this.signal })).published;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return null; // agents are not checked here
    }
  }

  /** A registered agent's own card, and with it what it says of where, what and how. */
  takeCard(agent, published) {
    const registered = Object.fromEntries(Object.entries(agent).filter(([name]) => !ADDED.includes(name)));
    const card = published ?? registered;
    this.origin = published ? "As the agent publishes it." : "As it is registered: no published one is known.";
    this.card.value = JSON.stringify(card, null, 2);
    const over = (card.supportedInterfaces ?? []).filter((one) => String(one?.protocolBinding).toUpperCase() === "JSONRPC");
    const speaks = over.find((one) => String(one.protocolVersion).startsWith("1."));
    this.version.value = speaks || !card.protocolVersion ? "1.0" : "0.3.0";
    const address = URL.canParse(speaks?.url ?? card.url) ? new URL(speaks?.url ?? card.url) : null;
    if (address) this.destination.value = address.origin;
    const skill = card.skills?.[0]?.id;
    if (skill) this.skill.value = skill;
    const open = !card.security?.length && !card.securityRequirements?.length;
    this.credential.value = open ? "missing" : "bound";
    this.told();
  }

  /** Show what the gateway says is wrong: at the field where there is one, else below. */
  complain(details, text) {
    const left = [];
    for (const [name, at] of Object.entries(this.fields)) mark(at, details.find(({ field: wrong }) => wrong === name || (name === "agent" && wrong === "answer.agent_id")));
    for (const { field: wrong, message } of details) if (!this.fields[wrong] && wrong !== "answer.agent_id") left.push(`${wrong} ${message}`);
    say(this.alert, [text, ...left].filter(Boolean).join(": "));
    this.alert.hidden = this.alert.textContent === "";
  }

  /** Lead to the first mistake: it may be out of sight. */
  focusMistake() {
    const wrong = this.element.querySelector('[aria-invalid="true"]');
    if (wrong) wrong.focus();
    else if (!this.alert.hidden) this.alert.scrollIntoView({ block: "nearest" });
  }
}

function named(label, control, hint) {
  control.id = `handoff-${label.toLowerCase().replace(/\W+/g, "-")}`;
  const at = field(label, control, hint);
  const said = h("span", { class: "bad-text handoff-wrong", id: `${control.id}-wrong` });
  at.append(said);
  const told = at.querySelector(".hint");
  if (told) told.id = `${control.id}-hint`;
  control.setAttribute("aria-describedby", told ? `${told.id} ${said.id}` : said.id);
  return at;
}

function mark(at, detail) {
  const control = at.querySelector("input, select, textarea");
  if (detail) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
  say(at.querySelector(".handoff-wrong"), detail ? `${detail.message[0].toUpperCase()}${detail.message.slice(1)}` : "");
}
