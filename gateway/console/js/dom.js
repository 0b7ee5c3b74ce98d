// Building elements. Text is always text: there is no way from a string to markup in here.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. `props`: `class`, `dataset`, `on` ({event: listener}), `style` ({property: value}), properties of the
 * element (value, checked, disabled, hidden ...) and attributes (role, aria-*, for ...). Children: nodes, text, lists;
 * null, undefined and false are left out.
 */
export function h(tag, props = {}, ...children) {
  return furnished(document.createElement(tag), props, children);
}

/** The same for SVG; every prop is an attribute. */
export function svg(tag, props = {}, ...children) {
  return furnished(document.createElementNS(SVG, tag), props, children);
}

/** Replace what an element holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(...flat(children));
  return parent;
}

/** Set an element's text, and touch the page only if it differs. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

function furnished(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (name.startsWith("on")) throw new Error(`no inline handlers: ${name}`);
    else if (element.namespaceURI !== SVG && name in element && !(name in READ_ONLY)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

const READ_ONLY = { list: 1, form: 1, role: 1, innerHTML: 1, outerHTML: 1 };

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
