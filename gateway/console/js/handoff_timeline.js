// The handoff's timeline: sixty seconds, ten for each of the six gates. Pure: the time comes from a clock that is given.

export const STEP = 10;
export const GATES = ["card", "endpoint", "contract", "credential", "request", "response"];
export const END = STEP * GATES.length;
export const SPEEDS = [0.25, 0.5, 1, 2];

/** A position that moves while it is played. `now()` gives milliseconds and never runs backwards. */
export class Timeline {
  constructor(now) {
    this.now = now;
    this.speed = 1;
    this.base = 0;
    this.since = null;
  }

  /** Where it stands, 0 to `END`. */
  get seconds() {
    if (this.since === null) return this.base;
    return Math.min(END, this.base + ((this.now() - this.since) / 1000) * this.speed);
  }

  /** Whether it moves; it comes to rest at the end by itself. */
  get playing() {
    return this.since !== null && this.seconds < END;
  }

  /** From the end it begins again. */
  play() {
    const from = this.seconds;
    this.base = from >= END ? 0 : from;
    this.since = this.now();
  }

  pause() {
    this.base = this.seconds;
    this.since = null;
  }

  /** Go somewhere; what plays, plays on from there. */
  seek(seconds) {
    const moving = this.playing;
    this.base = Math.min(END, Math.max(0, seconds));
    this.since = moving ? this.now() : null;
  }

  /** Pause, and go to the next boundary. */
  next() {
    this.pause();
    this.base = Math.min(END, (Math.floor(this.base / STEP) + 1) * STEP);
  }

  /** Change the speed from here on. */
  setSpeed(speed) {
    const moving = this.playing;
    this.base = this.seconds;
    this.since = moving ? this.now() : null;
    this.speed = speed;
  }
}

/** How many gates have been decided. */
export const decided = (seconds) => Math.floor(seconds / STEP);

/**
 * What can be seen of an answer of POST /handoff/trace after so many seconds: nothing that a later gate finds out.
 * `result` is null while there is none.
 */
export function moment(result, seconds) {
  const trace = result?.trace;
  const count = trace ? decided(seconds) : 0;
  const stop = trace ? trace.gates.findIndex((gate) => gate.result === "stop") : -1;
  const stopped = stop >= 0 && stop < count ? stop : -1;
  const over = stopped >= 0 || count === GATES.length;
  const known = (gate) => count > GATES.indexOf(gate);
  return {
    seconds,
    gates: GATES.map((name, index) => gateAt(trace?.gates[index] ?? { gate: name }, index, { count, stopped, seconds })),
    stopping_gate: stopped >= 0 ? GATES[stopped] : null,
    reason: stopped >= 0 ? trace.gates[stopped].reason : null,
    remedy: stopped >= 0 ? result.remedy : null,
    sends: known("response") ? trace.sends : 0,
    destination: known("endpoint") ? trace.destination : null,
    credential_exposed: known("credential") ? trace.credential_exposed : null,
    final_state: over ? trace.final_state : null,
    artifact: over ? trace.artifact : null,
    artifact_text: known("response") ? result.artifact_text : null,
    task_id: known("response") ? trace.task_id : null,
    request: known("request") ? trace.request : null,
    response: known("response") ? result.response : null,
  };
}

function gateAt(gate, index, { count, stopped, seconds }) {
  const name = { gate: gate.gate };
  if (stopped >= 0 && index > stopped) return { ...name, result: "not reached" };
  if (index < count) return gate;
  return { ...name, result: index === count && seconds > index * STEP ? "looking" : "waiting" };
}

/** The decided part of an answer, as it is exported: the model up to here, and no more. */
export function prefix(result, seconds) {
  const { gates, reason, remedy, ...rest } = moment(result, seconds);
  return { ...rest, gates: gates.filter((gate) => !["looking", "waiting"].includes(gate.result)) };
}
