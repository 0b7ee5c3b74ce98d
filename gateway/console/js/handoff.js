// The handoff inspector: one question, six gates, sixty seconds.

import { get, post } from "./api.js";
import { fill, h, say } from "./dom.js";
import { card, trouble } from "./ui.js";
import { Baseline } from "./handoff_baseline.js";
import { Inputs } from "./handoff_form.js";
import { notes } from "./handoff_notes.js";
import { Player } from "./handoff_player.js";
import { Stage } from "./handoff_stage.js";
import { save, stamp } from "./handoff_text.js";
import { END, Timeline, moment, prefix } from "./handoff_timeline.js";

const TICK_MS = 100;

/** See app.js for what a view is. */
export function mount(root, context) {
  fill(root, h("p", { class: "empty" }, "Loading"));
  let inspector = null;
  get("handoff/examples", { signal: context.signal }).then(
    (examples) => {
      if (context.signal.aborted) return;
      inspector = new Inspector(root, examples, context);
      const agent = context.query.get("agent"); // #/handoff?agent=echo
      if (agent) inspector.form.start(agent);
    },
    (error) => {
      if (error.name !== "AbortError") fill(root, heading(), trouble(error));
    },
  );
  return () => inspector?.leave();
}

const heading = () => h("h1", {}, "Handoff");

class Inspector {
  constructor(root, examples, { signal }) {
    this.root = root;
    this.signal = signal;
    this.timeline = new Timeline(() => performance.now());
    this.result = null;
    this.asking = null; // aborts the request for a trace that is under way
    this.drawn = 0; // counts traces: another one is drawn anew
    this.form = new Inputs(examples, { changed: () => this.reset(), signal });
    this.player = new Player({
      play: () => (this.timeline.playing ? this.pause() : this.with(() => this.timeline.play())),
      next: () => this.with(() => this.timeline.next()),
      restart: () => this.with(() => this.timeline.seek(0)),
      seek: (seconds) => this.with(() => this.timeline.seek(seconds)),
      speed: (speed) => this.change(() => this.timeline.setSpeed(speed)),
    });
    this.stage = new Stage();
    this.baseline = new Baseline(() => this.capture());
    this.hidden = () => document.hidden && this.timeline.playing && this.pause();
    document.addEventListener("visibilitychange", this.hidden);
    this.layout();
    this.show();
  }

  layout() {
    this.send = h("button", { class: "button primary", type: "button", on: { click: () => this.handOver() } }, "Send the task");
    this.sendNote = h("p", { class: "muted" }, "Sends the task once, if five gates let it pass. Playing, seeking and restarting never send again.");
    this.sending = h("div", { class: "handoff-send" }, this.send, this.sendNote);
    this.export = h("button", { class: "button small", type: "button", on: { click: () => this.save() } }, "Export trace");
    this.full = h("button", { class: "button small", type: "button", hidden: !document.fullscreenEnabled, on: { click: () => this.toggleFull() } }, "Full screen");
    this.fullChanged = () => say(this.full, document.fullscreenElement === this.root ? "Leave full screen" : "Full screen");
    document.addEventListener("fullscreenchange", this.fullChanged);
    this.root.classList.add("handoff");
    const stage = this.stage;
    fill(
      this.root,
      h("div", { class: "head" }, heading(), h("span", { class: "muted grow handoff-lead" }, "May this peer be handed this task? Six gates decide, before anything is sent."), this.export, this.full),
      h("section", { class: "card handoff-bar", "aria-label": "Player" }, h("div", { class: "body" }, this.player.element)),
      h(
        "div",
        { class: "handoff-columns" },
        card("Inputs", null, this.form.element, this.sending),
        h("div", { class: "stack handoff-main" }, h("div", { class: "handoff-pair" }, stage.gates, stage.moment), stage.exchange, this.baseline.element),
        notes(),
      ),
    );
  }

  leave() {
    clearInterval(this.ticking);
    this.asking?.abort();
    document.removeEventListener("visibilitychange", this.hidden);
    document.removeEventListener("fullscreenchange", this.fullChanged);
    if (document.fullscreenElement === this.root) document.exitFullscreen();
  }

  // -- the trace

  /** Inputs have changed: what there was is not theirs. */
  reset() {
    this.asking?.abort();
    this.asking = null;
    this.result = null;
    this.drawn += 1;
    this.change(() => {
      this.timeline.pause();
      this.timeline.seek(0);
    });
  }

  /** Move along the trace; one of a fixture is fetched first, one of a real send is there or is not. */
  async with(move) {
    if (this.asking) return this.show();
    if (!this.result && !this.form.sending) await this.ask();
    if (!this.result) return this.show();
    this.change(move);
    this.stage.come();
  }

  async handOver() {
    if (this.asking) return;
    this.reset();
    await this.ask();
    if (!this.result) return;
    this.change(() => this.timeline.play());
    this.stage.come();
  }

  async ask() {
    const asking = (this.asking = new AbortController());
    const inputs = this.form.value();
    this.show();
    try {
      const result = await post("handoff/trace", inputs, { signal: AbortSignal.any([asking.signal, this.signal]) });
      if (asking !== this.asking) return;
      this.inputs = inputs;
      this.result = result;
      this.drawn += 1;
      this.form.complain([], "");
    } catch (error) {
      if (asking !== this.asking || error.name === "AbortError") return;
      this.form.complain(error.details ?? [], error.details?.length ? "" : `The gateway gave no trace: ${error.message}`);
      this.form.focusMistake();
    } finally {
      if (asking === this.asking) {
        this.asking = null;
        this.show();
      }
    }
  }

  // -- the time

  pause() {
    this.change(() => this.timeline.pause());
  }

  change(act) {
    act();
    clearInterval(this.ticking);
    if (this.timeline.playing) this.ticking = setInterval(() => this.tick(), TICK_MS);
    this.show();
  }

  tick() {
    if (!this.timeline.playing) clearInterval(this.ticking);
    this.show();
  }

  // -- what is seen

  show() {
    const { seconds, playing } = this.timeline;
    const sending = this.form.sending;
    const seen = moment(this.result, seconds);
    const words = this.words({ seconds, playing, sending });
    this.player.show({ seconds, playing, words, ready: this.result !== null || !sending });
    this.stage.show(seen, { simulated: this.result?.simulated ?? !sending, deadline: this.inputs?.deadline_ms, complete: this.result !== null, drawn: this.drawn });
    this.sending.hidden = !sending;
    this.form.element.inert = sending && this.asking !== null; // what is under way cannot be called back
    this.send.setAttribute("aria-disabled", String(this.asking !== null)); // it keeps the focus
    this.export.disabled = this.result === null;
    this.baseline.show(this.capture(), seconds);
  }

  words({ seconds, playing, sending }) {
    if (this.asking) return sending ? "Sending" : "Asking";
    if (this.result === null) return sending ? "Not sent" : "Ready to play";
    if (playing) return "Playing";
    return { 0: "At the start", [END]: "At the end" }[seconds] ?? "Paused";
  }

  capture() {
    return this.result && { inputs: this.inputs, result: this.result };
  }

  save() {
    const document = {
      format: "vitalgate-handoff-trace/1",
      exported_at: new Date().toISOString(),
      inputs: this.inputs,
      model: this.result,
      inspected: prefix(this.result, this.timeline.seconds),
    };
    save(`handoff-trace-${stamp()}.json`, "application/json", `${JSON.stringify(document, null, 2)}\n`);
  }

  async toggleFull() {
    if (document.fullscreenElement === this.root) await document.exitFullscreen();
    else await this.root.requestFullscreen();
  }
}
