// Numbers and times for people.

const NUMBERS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A number with at most one digit behind the point; "–" for none. */
export const number = (value) => (value === null || value === undefined ? "–" : NUMBERS.format(value));

/** Milliseconds: "4.2 ms", "1.35 s"; "–" for none. */
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${Number(value.toFixed(1))} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  return `${Number((value / 1000).toFixed(value < 10000 ? 2 : 1))} s`;
}

/** Seconds as a short age: "12 s", "4 min", "3 h", "2 d". */
export function age(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const at = Math.max(0, seconds);
  if (at < 90) return `${Math.floor(at)} s`;
  if (at < 5400) return `${Math.round(at / 60)} min`;
  if (at < 172800) return `${Math.round(at / 3600)} h`;
  return `${Math.round(at / 86400)} d`;
}

/** A timestamp as the time of day here, with the date if it is not today's. */
export function time(text) {
  if (!text) return "–";
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return String(text);
  const clock = date.toLocaleTimeString([], { hour12: false });
  return date.toDateString() === new Date().toDateString() ? clock : `${date.toLocaleDateString()} ${clock}`;
}

/** A part of a whole in per cent. */
export function percent(part, whole) {
  if (!whole) return "–";
  const value = (part / whole) * 100;
  if (value === 0) return "0 %";
  return value < 10 ? `${value.toFixed(1)} %` : `${Math.round(value)} %`;
}

/** Signs that are not seen, or turn the direction of what follows: in foreign JSON they stand as escapes. */
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** JSON with two blanks, as text. */
export const pretty = (value) =>
  JSON.stringify(value, null, 2).replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
