// Rows of equal height of which only those in sight are in the page: a thousand are as quick as ten.

import { h } from "./dom.js";

const AROUND = 8; // rows beyond either edge, so that scrolling and the Tab key find some

/**
 * Make a list in which the window scrolls. `create(id)` gives a row's element, `update(element, id)` brings it up to date,
 * `height()` is that of a row in pixels. Call `show(ids)` whenever there are others, `refresh()` when rows have changed.
 */
export function virtualRows({ create, update, height, label }) {
  const body = h("div", { class: "rows", role: "rowgroup", "aria-label": label });
  const elements = new Map();
  let ids = [];
  let frame = 0;

  function render() {
    frame = 0;
    const row = height();
    const top = -body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / row) - AROUND);
    const last = Math.min(ids.length, Math.ceil((top + innerHeight) / row) + AROUND);
    body.style.setProperty("height", `${ids.length * row}px`);
    const wanted = ids.slice(first, Math.max(first, last));
    const keep = new Set(wanted);
    for (const [id, element] of elements) {
      if (keep.has(id)) continue;
      element.remove();
      elements.delete(id);
    }
    let before = body.firstElementChild;
    wanted.forEach((id, index) => {
      let element = elements.get(id);
      if (!element) elements.set(id, (element = create(id)));
      if (element === before) before = before.nextElementSibling;
      else if (element.contains(document.activeElement)) {
        // Moving it would lose the focus: what stands before it is moved instead.
        while (before && before !== element) {
          const next = before.nextElementSibling;
          body.append(before);
          before = next;
        }
        before = element.nextElementSibling;
      } else body.insertBefore(element, before);
      element.style.setProperty("transform", `translateY(${(first + index) * row}px)`);
      element.setAttribute("aria-rowindex", String(first + index + 2));
      update(element, id);
    });
  }

  function later() {
    frame ||= requestAnimationFrame(render);
  }

  /** Bring a row into sight and put the focus on its link. */
  function focus(index) {
    const id = ids[index];
    if (id === undefined) return;
    const row = height();
    const bar = document.querySelector(".bar").offsetHeight + 40;
    const at = body.getBoundingClientRect().top + index * row;
    if (at < bar) scrollBy(0, at - bar);
    else if (at + row > innerHeight - 64) scrollBy(0, at + row - innerHeight + 64);
    render();
    elements.get(id)?.querySelector("a")?.focus({ preventScroll: true });
  }

  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity, PageDown: 10, PageUp: -10 }[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const current = ids.indexOf(event.target.closest("[data-id]")?.dataset.id);
    if (current < 0) return;
    event.preventDefault();
    focus(Math.min(ids.length - 1, Math.max(0, current + step)));
  });
  addEventListener("scroll", later, { passive: true });
  addEventListener("resize", later);
  return {
    body,
    show(wanted) {
      ids = wanted;
      later();
    },
    refresh: later,
    focus,
    stop() {
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
      cancelAnimationFrame(frame);
    },
  };
}
