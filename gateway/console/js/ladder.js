// The checks of a run, one below the other, with what they cost and what to do about what they found.

import { h } from "./dom.js";
import { milliseconds, time } from "./format.js";
import { badge, facts, tone } from "./ui.js";

const PARTS = { dns: "look-up", connect: "connect", tls: "TLS", first_byte: "first byte" };

/** The ladder of a health document (health contract 6, 7). */
export function ladder(health) {
  const checks = Object.entries(health.checks);
  if (!checks.length) return h("p", { class: "empty" }, "It has not been checked yet.");
  const most = Math.max(1, ...checks.map(([, check]) => check.timings_ms?.total ?? 0));
  return h("ol", { class: "ladder" }, checks.map(([name, check]) => rung(name, check, most, health.advice.find((one) => one.check === name))));
}

function rung(name, check, most, advice) {
  const found = check.code
    ? h("p", {}, `${sentence(check.message)} `, h("code", { class: "muted" }, [check.code, check.reason, check.subject].filter(Boolean).join(" · ")))
    : null;
  const remedy = advice
    ? h("div", { class: "remedy" }, h("p", {}, words(advice.meaning)), h("p", {}, h("strong", {}, "Likely: "), words(advice.cause)), h("p", {}, h("strong", {}, "Do: "), words(advice.remedy)))
    : null;
  return h(
    "li",
    { class: `rung ${tone(check.status)}` },
    h("div", { class: "rung-head" }, h("h3", {}, name), badge(check.status), timings(check.timings_ms, most)),
    found,
    remedy,
    check.certificate_expires_at ? h("p", { class: "muted" }, `The certificate ends ${time(check.certificate_expires_at)}.`) : null,
  );
}

function timings(spent, most) {
  if (!spent?.total) return null;
  const parts = Object.keys(PARTS).filter((part) => spent[part]);
  let before = 0;
  const bars = parts.map((part) => {
    const wide = Math.max(0, spent[part]);
    before += wide;
    return bar(part, wide, most);
  });
  bars.push(bar("rest", Math.max(0, spent.total - before), most));
  const words = [...parts.map((part) => `${PARTS[part]} ${milliseconds(spent[part])}`), `total ${milliseconds(spent.total)}`].join(", ");
  return h("span", { class: "timings", title: words }, h("span", { class: "bars", "aria-hidden": "true" }, bars), h("span", { class: "number" }, milliseconds(spent.total)), h("span", { class: "unseen" }, `: ${words}`));
}

function bar(part, spent, most) {
  return h("span", { class: `bar-part ${part}`, style: { width: `${((spent / most) * 100).toFixed(1)}%` } });
}

/** What stands between backticks is code. */
const words = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "");

/** What routing makes of it. */
export function evidence(health) {
  const { passive } = health;
  return facts([
    ["Checked", health.checked_at ? time(health.checked_at) : "not yet"],
    ["In a row", `${health.consecutive} × ${health.status.toLowerCase()}`],
    ["Calls, 30 s", `${passive.calls} forwarded, ${passive.failures} held against it; ${passive.failures_in_a_row} failed in a row`],
    health.next_trial_seconds === null ? null : ["Trial call", health.next_trial_seconds ? `in ${Math.ceil(health.next_trial_seconds)} s` : "the next one that comes"],
  ]);
}
