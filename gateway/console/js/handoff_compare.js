// A trace beside another one, row by row. Pure; ids are fresh in every request, and are not compared.

import { moment } from "./handoff_timeline.js";

const INPUTS = {
  card: "Card",
  destination: "Destination",
  skill: "Skill",
  policy: "Endpoint policy",
  credential: "Credential scope",
  public: "Public card admitted",
  protocol_version: "Protocol version",
  text: "Task",
  deadline_ms: "Deadline",
  answer: "Answer",
};

/** Rows {name, before, now, differs} of two captures {inputs, result}, both as seen after so many seconds. */
export function compare(baseline, current, seconds) {
  const [before, now] = [baseline, current].map((one) => outcome(moment(one.result, seconds)));
  const rows = Object.keys(before).map((name) => row(name, before[name], now[name]));
  const inputs = Object.entries(INPUTS).map(([key, name]) => {
    const [was, is] = [baseline.inputs[key], current.inputs[key]];
    return { name, before: told(key, was), now: told(key, is), differs: JSON.stringify(was) !== JSON.stringify(is) };
  });
  return { rows, inputs };
}

const row = (name, before, now) => ({ name, before, now, differs: before !== now });

function outcome(seen) {
  const gates = seen.gates.map(({ gate, result, reason }, index) => [`Gate ${index + 1}, ${gate}`, reason ? `${result}: ${reason}` : result]);
  return {
    ...Object.fromEntries(gates),
    "Stopping gate": seen.stopping_gate ?? "none",
    Sends: String(seen.sends),
    Destination: seen.destination ?? "none",
    "Credential exposed": { true: "yes", false: "no" }[seen.credential_exposed] ?? "not known yet",
    "Final state": seen.final_state ?? "in progress",
    "Accepted text": seen.artifact_text ?? "none",
    "Response status": seen.response?.status ? String(seen.response.status) : "none",
  };
}

function told(key, value) {
  if (key === "card") return `${value.length} characters`;
  if (key === "deadline_ms") return `${value} ms`;
  if (key !== "answer") return { true: "yes", false: "no" }[value] ?? String(value);
  if (!value) return "dry run";
  return value.agent_id ? `sent to ${value.agent_id}` : `${value.fixture} after ${value.delay_ms} ms`;
}
