// The frame of the console: which view the address names, theme, token.
//
// A view is a module in this folder that exports `mount(root, context)`, which fills `root` and gives a function that
// undoes everything else it did (timers, listeners, requests). `context`:
//   params    what follows the view's name in the address, decoded: #/agents/echo → ["echo"]
//   query     URLSearchParams behind a "?" in the address: #/try?agent=echo
//   feed      changes as they happen: feed.listen(({event, data}) => ...) gives what ends it
//   signal    aborted when the view is left: hand it to fetch
//   navigate  navigate("#/agents")
//   toast     toast("Copied")
// REST: import { get, post, send, events, ApiError } from "./api.js". Elements: dom.js. Pieces: ui.js.

import { hasToken, onDenied, onToken, setToken } from "./api.js";
import { fill, h, svg } from "./dom.js";
import { Feed } from "./feed.js";
import { toast } from "./ui.js";

const VIEWS = {
  agents: { title: "Agents", icon: "M4 6h16M4 12h16M4 18h10", load: () => import("./agents.js") },
  try: { title: "Try it", icon: "M5 12h13M12 5l7 7-7 7", load: () => import("./try.js") },
  handoff: { title: "Handoff", icon: "M4 8h12l-3-3M20 16H8l3 3", load: () => import("./handoff.js") },
  gateway: { title: "Gateway", icon: "M4 20V9a8 8 0 0 1 16 0v11M4 14h16", load: () => import("./gateway.js") },
};
/** Views that have no place in the bar. */
const INNER = { agent: { title: "Agent", load: () => import("./agent.js") } };

const view = document.getElementById("view");
const live = document.getElementById("live");
const LIVE = { live: "Live", lost: "Reconnecting", off: "Not live" };
let leave = () => {};
let turn = 0;

const feed = new Feed((state) => {
  live.dataset.state = state;
  live.textContent = LIVE[state];
});

/** "#/agents/echo?x=1" → name, params, query; a wrong escape counts as text. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...params] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const wanted = Object.hasOwn(VIEWS, name) ? name : "agents";
  const given = params.filter((part) => part !== "");
  const inner = wanted === "agents" && given.length ? "agent" : wanted;
  return { tab: wanted, name: inner, params: given, query: new URLSearchParams(query) };
}

async function show() {
  const mine = ++turn;
  const { tab, name, params, query } = address();
  const found = VIEWS[name] ?? INNER[name];
  for (const link of nav.children) {
    if (link.dataset.view === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave();
  leave = () => {};
  const abort = new AbortController();
  const root = h("div", { class: `view view-${name}` });
  fill(view, root);
  document.title = `${found.title} · vitalgate`;
  const context = { params, query, feed, signal: abort.signal, navigate, toast };
  try {
    const module = await found.load();
    if (mine !== turn) return;
    const unmount = module.mount(root, context);
    leave = () => {
      abort.abort();
      unmount?.();
    };
  } catch (error) {
    console.error(error);
    fill(root, h("p", { class: "note bad", role: "alert" }, `This page could not be shown: ${error.message}`));
  }
}

function navigate(hash) {
  location.hash = hash;
}

// -- the bar

const nav = document.getElementById("nav");
fill(
  nav,
  Object.entries(VIEWS).map(([name, { title, icon }]) =>
    h("a", { href: `#/${name}`, dataset: { view: name } }, svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: icon })), title),
  ),
);

const THEMES = {
  auto: { next: "light", name: "as the system", icon: ["M12 3a9 9 0 1 0 0 18z", "M12 3a9 9 0 0 1 0 18"] },
  light: { next: "dark", name: "light", icon: ["M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8z", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.500 17.500L19 19M5 19l1.500-1.500M17.500 6.500L19 5"] },
  dark: { next: "auto", name: "dark", icon: ["M20 14.500A8.500 8.500 0 0 1 9.500 4A8.500 8.500 0 1 0 20 14.500z"] },
};

/** What this browser keeps; it may refuse to. */
const kept = {
  get: (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // private windows may forbid it: then the choice lasts as long as the page
    }
  },
};

const themeButton = document.getElementById("theme");
function setTheme(name) {
  const theme = THEMES[name];
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  fill(themeButton, svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, theme.icon.map((d) => svg("path", { d }))));
  themeButton.setAttribute("aria-label", `Colours: ${theme.name}`);
  themeButton.title = `Colours: ${theme.name}`;
  themeButton.onclick = () => {
    kept.set("vitalgate.theme", theme.next);
    setTheme(theme.next);
  };
}
const before = kept.get("vitalgate.theme");
setTheme(before && Object.hasOwn(THEMES, before) ? before : "auto");

// -- the token

const dialog = document.getElementById("sign-in");
const account = document.getElementById("account");

function askForToken(refused) {
  account.hidden = false;
  if (dialog.open) return;
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: false, required: true });
  fill(
    dialog,
    h(
      "form",
      {
        method: "dialog",
        on: {
          submit: () => {
            const given = field.value;
            field.value = "";
            setToken(given);
          },
        },
      },
      h("h2", { id: "sign-in-title" }, "Token"),
      refused ? h("p", { class: "note bad", role: "alert" }, "The gateway does not take this token. It may have expired.") : null,
      h("p", { class: "muted" }, "Authentication is on. The token stays in this page's memory: it is gone when the page is closed or loaded again."),
      h("div", { class: "field" }, h("label", { for: "token" }, "Bearer token"), field, h("span", { class: "hint" }, "To try: vitalgate token NAME --config FILE")),
      h(
        "div",
        { class: "row" },
        h("button", { class: "button primary", type: "submit" }, "Use it"),
        h("button", { class: "button quiet", type: "button", on: { click: () => dialog.close() } }, "Not now"),
        hasToken() ? h("button", { class: "button quiet", type: "button", on: { click: forget } }, "Forget the token") : null,
      ),
    ),
  );
  dialog.showModal();
}

function forget() {
  dialog.close();
  setToken("");
}

account.addEventListener("click", () => askForToken(false));
onDenied((refused) => askForToken(refused));
onToken(() => show());

addEventListener("hashchange", () => {
  show();
  scrollTo(0, 0);
  view.focus({ preventScroll: true });
});
if (!document.hidden) feed.start(); // a browser has six connections to a host: only pages in sight hold one
show();
