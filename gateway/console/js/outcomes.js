// How calls ended, by class.

/** The classes that are errors, with their short names. */
export const ERRORS = { application_error: "app", transport_error: "transport", protocol_error: "protocol" };

/** All calls of a row's window. */
export const total = (outcomes) => Object.values(outcomes).reduce((sum, count) => sum + count, 0);

/** Those that failed; a caller who left is no failure. */
export const failed = (outcomes) => Object.keys(ERRORS).reduce((sum, name) => sum + (outcomes[name] ?? 0), 0);

/** "app 3 · transport 1", callers who left behind; "" if all went well. */
export function byClass(outcomes) {
  const parts = Object.entries(ERRORS).filter(([name]) => outcomes[name]).map(([name, short]) => `${short} ${outcomes[name]}`);
  if (outcomes.cancelled) parts.push(`left ${outcomes.cancelled}`);
  return parts.join(" · ");
}
