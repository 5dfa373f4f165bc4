// Navigation between the pages, and the notice around them.

import { Refusal, api } from "./api.js";
import { applyTheme, openSettings } from "./settings.js";
import { circles } from "./draw.js";
import { announce, h } from "./dom.js";
import { enrolView } from "./enrol.js";
import { modelView } from "./model.js";
import { operatorView } from "./operator.js";
import { peopleView } from "./people.js";
import { verifyView } from "./verify.js";

const VIEWS = { verify: ["Verify", verifyView], enrol: ["Enrol", enrolView], people: ["People", peopleView],
  operator: ["Operator", operatorView], model: ["Model", modelView] };
const main = document.getElementById("content");
let leave = null;
let shown = 0;

async function show(focus = true) {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [title, view] = VIEWS[name] ?? VIEWS.verify;
  leave?.();
  leave = null;
  const request = ++shown;
  document.title = `${title} · Say your pass-phrase`;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#/${VIEWS[name] ? name : "verify"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const page = h("div", { class: `view ${title.toLowerCase()}` });
  try {
    const cleanUp = await view(page, new URLSearchParams(query));
    if (request !== shown) { cleanUp?.(); return; }
    leave = cleanUp;
  } catch (error) {
    if (request !== shown) return;
    page.replaceChildren(h("h1", { tabindex: -1 }, title), h("div", { class: "empty" }, circles(null, 120),
      h("p", { class: "problem", role: "alert" },
        error instanceof Refusal ? error.message : `Something went wrong on this page: ${error.message}`),
      h("button", { type: "button", class: "primary", onclick: () => show() }, "Try again")));
    if (!(error instanceof Refusal)) console.error(error);
  }
  main.replaceChildren(page);
  if (focus) { page.querySelector("h1")?.focus(); scrollTo(0, 0); announce(`${title} page`); }
}

async function about() {
  const notice = document.getElementById("notice");
  try {
    const { version, demoNetwork, notice: text } = await api.health();
    document.getElementById("about").textContent = `mvplda ${version ?? ""}`;
    notice.textContent = text ?? (demoNetwork ? "Demonstration: the small network was trained on synthetic voices only and protects nothing." : "");
  } catch { notice.textContent = ""; }
  notice.hidden = !notice.textContent;
}

applyTheme();
addEventListener("hashchange", () => { if (location.hash.startsWith("#/")) show(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("settings").addEventListener("click", () => openSettings(() => show()));
document.addEventListener("key-wanted", () => openSettings(() => { about(); show(); },
  "This server requires an API key. Its operator creates one with mvplda serve key."));
about();
show(false);
