// Elements are built without markup in strings: no text of a server or a person is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Announce a text to screen readers only. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 50); // an emptied region is announced again, even with the same text
}

export const percent = (p, digits = 0) => `${(100 * p).toFixed(digits)}\u00a0%`;

/** A share as people say it: 0.001 is "1 in 1,000". */
export const oneIn = (share) => (share > 0 ? `1 in ${Math.round(1 / share).toLocaleString("en-GB")}` : "none");

export const signed = (x, digits = 1) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;

/** Likelihood ratio of an LLR in words, rounded. */
export function times(llr) {
  const ratio = Math.exp(Math.min(Math.abs(llr), 60));
  if (ratio >= 1e6) return "over a million times";
  const digits = Math.max(0, Math.floor(Math.log10(ratio)) - 1);
  return `${ratio < 10 ? ratio.toFixed(1) : (Math.round(ratio / 10 ** digits) * 10 ** digits).toLocaleString("en-GB")} times`;
}

/** Profiles in the order of their names. */
export const byName = (a, b) => (a.userId || a.profileId).localeCompare(b.userId || b.profileId);

export function when(iso) {
  if (!iso) return "never";
  const date = new Date(iso);
  const today = date.toDateString() === new Date().toDateString();
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const year = date.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return today ? `today, ${time}` : date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}

/** Ask a question in a dialog; resolves to true if it was confirmed. */
export function confirm(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = h("dialog",
      { "aria-labelledby": "ask", onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      h("form", { method: "dialog" },
        h("h2", { id: "ask" }, title), h("p", {}, text),
        h("p", { class: "row end" },
          h("button", { class: "quiet", value: "no", autofocus: true }, "Cancel"),
          h("button", { class: "danger", value: "yes" }, yes))));
    document.body.append(dialog);
    dialog.showModal();
  });
}
