// The controls of the timeline.

import { h, say } from "./dom.js";
import { icon } from "./ui.js";
import { END, GATES, SPEEDS, STEP, decided } from "./handoff_timeline.js";

const NAMES = { 0.25: "¼", 0.5: "½", 1: "1", 2: "2" };
const READ = { 0.25: "A quarter of the speed", 0.5: "Half the speed", 1: "Normal speed", 2: "Twice the speed" };
const ICONS = {
  play: "M8 5v14l11-7z",
  pause: "M9 5v14M15 5v14",
  next: ["M6 5v14l9-7z", "M18 5v14"],
  restart: ["M4 12a8 8 0 1 0 2.500-5.800", "M4 4v4.500h4.500"],
};

/** `act`: what the buttons do: play (or pause), next, restart, seek(seconds), speed(factor). */
export class Player {
  constructor(act) {
    this.play = button("Play", ICONS.play, act.play, "primary");
    this.next = button("Next gate", ICONS.next, act.next);
    this.restart = button("Restart", ICONS.restart, act.restart);
    this.clock = h("span", { class: "handoff-clock number", role: "timer", "aria-label": "Time" });
    this.state = h("span", { class: "badge plain", role: "status" });
    this.slider = h("input", { type: "range", min: 0, max: END, step: 1, value: 0, "aria-label": "Timeline, in seconds", on: { input: () => act.seek(Number(this.slider.value)) } });
    this.speeds = h(
      "fieldset",
      { class: "handoff-speeds" },
      h("legend", { class: "unseen" }, "Speed"),
      SPEEDS.map((speed) =>
        h("label", { title: READ[speed] }, h("input", { type: "radio", name: "handoff-speed", value: speed, checked: speed === 1, "aria-label": READ[speed], on: { change: () => act.speed(speed) } }), h("span", { "aria-hidden": "true" }, `${NAMES[speed]}×`)),
      ),
    );
    const ticks = Array.from({ length: END / STEP + 1 }, (_, at) => h("span", {}, String(at * STEP)));
    this.element = h(
      "div",
      { class: "handoff-player", role: "group", "aria-label": "Timeline" },
      h("div", { class: "row" }, this.play, this.next, this.restart, h("span", { class: "grow" }), this.state, this.clock, this.speeds),
      h("div", { class: "handoff-track" }, this.slider, h("div", { class: "handoff-ticks number", "aria-hidden": "true" }, ticks)),
    );
    this.shown = null;
  }

  /** Show where things stand, in `words` too; `ready`: there is something to play, or can be. */
  show({ seconds, playing, ready, words }) {
    say(this.state, words);
    const whole = Math.floor(seconds);
    this.slider.value = whole;
    this.slider.setAttribute("aria-valuetext", `${whole} of ${END} seconds, ${where(seconds)}`);
    say(this.clock, `0:${String(whole).padStart(2, "0")} / 1:00`.replace("0:60", "1:00"));
    for (const control of [this.play, this.next, this.restart, this.slider]) control.disabled = !ready;
    if (this.shown === playing) return;
    this.shown = playing;
    this.play.replaceChildren(icon(playing ? ICONS.pause : ICONS.play), playing ? "Pause" : "Play");
  }
}

const where = (seconds) => (seconds >= END ? "the end" : `gate ${decided(seconds) + 1} of ${GATES.length}: ${GATES[decided(seconds)]}`);

function button(label, paths, click, kind = "") {
  return h("button", { class: `button ${kind}`, type: "button", on: { click } }, icon(...[paths].flat()), label);
}
