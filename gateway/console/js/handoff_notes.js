// Notes of whoever inspects: kept in this browser, and exported when asked.

import { h, say } from "./dom.js";
import { card } from "./ui.js";
import { save, stamp } from "./handoff_text.js";

const KEY = "vitalgate.handoff.notes";
const KEPT = "Kept in this browser, and nowhere else.";
const NOT_KEPT = "This browser keeps nothing for this page: export the notes before you leave.";

/** The card with the notes. */
export function notes() {
  const hint = h("p", { class: "muted", id: "handoff-notes-hint" }, KEPT);
  const area = h("textarea", { id: "handoff-notes", rows: 5, "aria-label": "Your notes", "aria-describedby": hint.id, placeholder: "What did you look at, and what follows from it?" });
  const out = h("button", { class: "button small", type: "button", on: { click: () => save(`handoff-notes-${stamp()}.txt`, "text/plain", area.value) } }, "Export notes");
  try {
    area.value = localStorage.getItem(KEY) ?? "";
  } catch {
    say(hint, NOT_KEPT);
  }
  const followed = () => (out.disabled = area.value === "");
  area.addEventListener("input", () => {
    followed();
    try {
      if (area.value) localStorage.setItem(KEY, area.value);
      else localStorage.removeItem(KEY);
      say(hint, KEPT);
    } catch {
      say(hint, NOT_KEPT);
    }
  });
  followed();
  return card("Notes", out, area, hint);
}
