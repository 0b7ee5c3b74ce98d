// Plots in SVG: lines over equal steps, with a strip of colours above them if wanted. The values stand below, in words:
// those under the pointer, or under the cursor that the arrow keys move, else the newest.

import { fill, h, say, svg } from "./dom.js";

const LEFT = 52;
const RIGHT = 8;
const STRIP = 18;
const FEWEST = 40; // slots, so that few points are not spread over the whole width

export class Plot {
  /**
   * `lines`: [{name, kind}], the colours are those of .line-KIND. `most`: how many points are kept. `strip`: points have a
   * `tone` (ok, warn, bad, idle) and a `below` (the same, for the thin strip). `format(value)` writes the axis.
   * `describe(point)` → words.
   */
  constructor({ label, lines, most, height = 150, strip = false, format = String, describe }) {
    Object.assign(this, { label, lines, most, height, strip, format, describe });
    this.points = [];
    this.slots = FEWEST;
    this.at = null;
    this.svg = svg("svg", { class: "plot", role: "img", tabindex: 0, height });
    this.words = h("p", { class: "plot-words number" });
    const legend = h("div", { class: "legend" }, lines.map(({ name, kind }) => h("span", { class: `key line-${kind}` }, name)));
    this.element = h("figure", { class: "figure" }, legend, this.svg, this.words);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.move(null));
    this.svg.addEventListener("blur", () => this.move(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.svg);
  }

  stop() {
    this.watch.disconnect();
  }

  /** Show points, the oldest first: [{values: [number or null, ...], tone, below, ...}]. */
  set(points) {
    this.points = points.slice(-this.most);
    this.slots = Math.max(FEWEST, this.points.length);
    if (this.at !== null && this.at >= this.points.length) this.at = null;
    this.draw();
  }

  get width() {
    return this.svg.clientWidth || 600;
  }

  get top() {
    return this.strip ? STRIP + 12 : 8;
  }

  x(index) {
    const step = (this.width - LEFT - RIGHT) / this.slots;
    return LEFT + (this.slots - this.points.length + index + 0.5) * step;
  }

  draw() {
    const highest = Math.max(0, ...this.points.flatMap(({ values }) => values.filter((value) => value !== null)));
    this.ceiling = nice(highest);
    const bottom = this.height - 8;
    this.y = (value) => bottom - (value / this.ceiling) * (bottom - this.top);
    const marks = [0, 0.5, 1].map((part) => part * this.ceiling);
    fill(
      this.svg,
      marks.map((value) => [
        svg("line", { class: "grid-line", x1: LEFT, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) }),
        svg("text", { class: "axis", x: LEFT - 8, y: this.y(value) + 4, "text-anchor": "end" }, this.format(value)),
      ]),
      this.strip ? this.bands() : null,
      this.lines.map(({ kind }, line) => svg("path", { class: `line line-${kind}`, d: this.path(line) })),
      (this.cursor = svg("g", { class: "cursor" })),
    );
    this.mark();
  }

  bands() {
    const step = (this.width - LEFT - RIGHT) / this.slots;
    const wide = Math.max(1, step - 1);
    return this.points.map((point, index) => [
      svg("rect", { class: `band ${point.tone}`, x: this.x(index) - wide / 2, y: 0, width: wide, height: STRIP - 5, rx: 1 }),
      svg("rect", { class: `band ${point.below}`, x: this.x(index) - step / 2, y: STRIP - 3, width: step, height: 3 }),
    ]);
  }

  path(line) {
    let pen = "M";
    return this.points
      .map(({ values }, index) => {
        if (values[line] === null || values[line] === undefined) {
          pen = "M";
          return "";
        }
        const part = `${pen}${this.x(index).toFixed(1)} ${this.y(values[line]).toFixed(1)}`;
        const alone = pen === "M" ? "h0.01" : "";
        pen = "L";
        return part + alone;
      })
      .join("");
  }

  point(event) {
    const step = (this.width - LEFT - RIGHT) / this.slots;
    const index = Math.floor((event.offsetX - LEFT) / step) - (this.slots - this.points.length);
    this.move(index >= 0 && index < this.points.length ? index : null);
  }

  key(event) {
    const newest = this.points.length - 1;
    const from = this.at ?? newest;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: newest }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(Math.min(newest, Math.max(0, to)));
  }

  move(index) {
    this.at = index;
    this.mark();
  }

  mark() {
    const point = this.points[this.at ?? this.points.length - 1];
    say(this.words, point ? this.describe(point) : "Nothing yet.");
    this.svg.setAttribute("aria-label", `${this.label}. ${this.words.textContent} Arrow keys move.`);
    if (!this.cursor) return;
    if (this.at === null || !point) return void fill(this.cursor);
    const x = this.x(this.at);
    fill(
      this.cursor,
      svg("line", { class: "cursor-line", x1: x, x2: x, y1: 0, y2: this.height - 8 }),
      this.lines.map(({ kind }, line) =>
        point.values[line] === null || point.values[line] === undefined ? null : svg("circle", { class: `dot line-${kind}`, cx: x, cy: this.y(point.values[line]), r: 3.5 }),
      ),
    );
  }
}

/** The next of 1, 2, 5 × 10ⁿ that is not below a value. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((bound) => bound >= value * 0.999);
}
