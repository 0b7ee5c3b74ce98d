// What the handoff inspector shows at one moment: the gates, the facts, request and response. Everything is text.

import { fill, h, say } from "./dom.js";
import { card, code } from "./ui.js";
import { GATES, STEP } from "./handoff_timeline.js";
import { indented } from "./handoff_text.js";

const TITLES = {
  card: ["Card", "Is it an agent card?"],
  endpoint: ["Endpoint", "May the task go to this address?"],
  contract: ["Contract", "Version, transport, skill and modes"],
  credential: ["Credential", "May our token go there?"],
  request: ["Request", "Can the message be built?"],
  response: ["Response", "What does the answer say?"],
};
const TONES = { pass: "ok", stop: "bad", looking: "info", waiting: "idle", "not reached": "idle" };
const GOOD = new Set(["ready", "completed"]);
const OPEN = new Set(["completed-no-text", "working-not-complete", "needs-input", "needs-auth", "timeout-unknown", "connection-unknown"]);
const FAILED = { dns_failed: "its name was not found", connect_refused: "the connection was refused", address_not_allowed: "the gateway may not connect there" };

export class Stage {
  constructor() {
    this.rows = GATES.map(gateRow);
    this.facts = h("dl", { class: "facts handoff-facts" });
    this.note = h("div", { class: "handoff-note", hidden: true });
    this.request = h("div", {});
    this.response = h("div", {});
    this.said = h("p", { class: "unseen", role: "status" });
    this.at = h("span", { class: "muted number" });
    this.gates = card("Gates", null, h("ol", { class: "handoff-gates" }, this.rows.map(({ element }) => element)), this.said);
    this.gates.classList.add("handoff-gates-card");
    this.moment = card("At this moment", this.at, this.note, this.facts);
    this.exchange = h("div", { class: "handoff-exchange" }, card("Request", null, this.request), card("Response", null, this.response));
    this.key = "";
  }

  /** Show a moment; what has not changed is left alone, so that what is being read or selected stays. */
  show(seen, { simulated, deadline, complete, drawn }) {
    say(this.at, `${Math.floor(seen.seconds)} s`);
    const key = JSON.stringify([drawn, seen.gates.map((gate) => gate.result)]);
    if (key === this.key) return;
    this.key = key;
    this.rows.forEach((row, index) => row.show(seen.gates[index]));
    fill(this.facts, facts(seen, simulated).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    this.remark(seen);
    fill(this.request, asked(seen, complete));
    fill(this.response, answered(seen, { simulated, deadline, complete }));
    say(this.said, spoken(seen));
  }

  /** Bring the gates into sight where they stand below the inputs, unless some of them is. */
  come() {
    const { top, bottom } = this.gates.getBoundingClientRect();
    if (top > innerHeight - 120 || bottom < 0) this.gates.scrollIntoView({ block: "start" });
  }

  remark(seen) {
    const accepted = seen.artifact === "accepted" && seen.artifact_text !== null;
    this.note.hidden = !accepted && !seen.remedy;
    if (accepted) fill(this.note, h("figure", { class: "handoff-artifact" }, h("figcaption", {}, "Accepted text artifact"), h("blockquote", {}, seen.artifact_text)));
    else fill(this.note, h("p", { class: "note warn" }, h("strong", {}, "What to try. "), seen.remedy ?? ""));
  }
}

function gateRow(name, index) {
  const badge = h("span", { class: "badge" });
  const found = h("dl", { class: "handoff-found" });
  const reason = h("code", { class: "handoff-reason" });
  const element = h(
    "li",
    { class: "handoff-gate" },
    h("span", { class: "handoff-number number", "aria-hidden": "true" }, String(index + 1)),
    h("div", { class: "handoff-what" }, h("h3", {}, TITLES[name][0]), h("p", { class: "muted" }, TITLES[name][1])),
    h("div", { class: "handoff-verdict" }, badge, reason),
    h("span", { class: "handoff-when muted number", "aria-label": `Decided at ${(index + 1) * STEP} seconds` }, `${(index + 1) * STEP} s`),
    found,
  );
  function show(gate) {
    element.dataset.result = gate.result;
    badge.className = `badge ${TONES[gate.result]}`;
    say(badge, gate.result);
    say(reason, gate.reason ?? "");
    fill(found, Object.entries(gate.looked_at ?? {}).filter(([, value]) => value !== null).map(([key, value]) => h("div", {}, h("dt", {}, key.replaceAll("_", " ")), h("dd", {}, worded(value)))));
  }
  return { element, show };
}

function worded(value) {
  if (Array.isArray(value)) return value.join(", ") || "none";
  return { true: "yes", false: "no" }[value] ?? String(value);
}

function facts(seen, simulated) {
  const unknown = h("span", { class: "muted" }, "not known yet");
  const number = GATES.indexOf(seen.stopping_gate) + 1;
  return [
    ["Stopping gate", number ? h("span", {}, h("strong", {}, `${number} ${seen.stopping_gate}`), " ", h("code", {}, seen.reason)) : "none"],
    ["Sends", h("span", {}, h("span", { class: "number" }, String(seen.sends)), simulated && seen.sends ? h("span", { class: "muted" }, " (simulated: nothing left this gateway)") : null)],
    ["Destination", seen.destination ?? (decidedBefore(seen, "endpoint") ? "none" : unknown)],
    ["Credential exposed", seen.credential_exposed === null ? unknown.cloneNode(true) : seen.credential_exposed ? h("span", { class: "badge bad" }, "yes") : "no"],
    ["Final state", seen.final_state === null ? h("span", { class: "muted" }, "in progress") : h("span", { class: `badge breaks ${GOOD.has(seen.final_state) ? "ok" : OPEN.has(seen.final_state) ? "warn" : "bad"}` }, seen.final_state)],
    seen.task_id ? ["Task id", h("code", {}, seen.task_id)] : null,
  ].filter(Boolean);
}

const decidedBefore = (seen, gate) => !["waiting", "looking"].includes(seen.gates[GATES.indexOf(gate)].result);

function asked(seen, complete) {
  if (seen.request) return code(JSON.stringify(seen.request, null, 2), "The message");
  return h("p", { class: "muted" }, !complete || seen.stopping_gate === null ? "The fifth gate builds it." : "None: a gate stopped before.");
}

function answered(seen, { simulated, deadline, complete }) {
  const answer = seen.response;
  if (!answer) return h("p", { class: "muted" }, seen.final_state === "ready" ? "None: this is a dry run." : complete && seen.stopping_gate !== null ? "None: nothing was sent." : "The sixth gate reads it.");
  const after = h("span", { class: "muted number" }, ` after ${answer.elapsed_ms} ms${simulated ? ", simulated" : ""}`);
  if (answer.status === null) return h("p", {}, answer.failure ? `No answer: ${FAILED[answer.failure] ?? answer.failure.replaceAll("_", " ")}` : `No answer within ${deadline} ms`, after);
  const cut = answer.truncated ? h("p", { class: "muted" }, "Only its beginning is shown.") : null;
  return [h("p", { class: "handoff-status" }, h("strong", { class: "number" }, `HTTP ${answer.status}`), after), answer.body ? code(indented(answer.body), "The answer") : h("p", { class: "muted" }, "It is empty."), cut];
}

/** For those who listen: the last verdict. */
function spoken(seen) {
  const last = seen.gates.findLastIndex((gate) => gate.result === "pass" || gate.result === "stop");
  if (last < 0) return "";
  const { gate, result, reason } = seen.gates[last];
  const end = seen.final_state ? `. Final state: ${seen.final_state}` : "";
  return `Gate ${last + 1}, ${gate}: ${result}${reason ? `, ${reason}` : ""}${end}${seen.artifact_text ? `. Accepted text: ${seen.artifact_text}` : ""}`;
}
