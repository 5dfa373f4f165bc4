// People: states of their profiles, opting out and deletion.

import { api } from "./api.js";
import { circles } from "./draw.js";
import { announce, byName, confirm, h, when } from "./dom.js";

const MAX_SHOWN = 50;
const STATES = {
  created: ["Not started", null], enrolling: ["Enrolling", null], enrolled: ["Enrolled", "TC"],
    stale: ["Stale: the model changed", null],
  expired: ["Expired", "IW"], damaged: ["Damaged: reset or delete", "IW"], opted_out: ["Opted out", "IW"], deleted: ["Deleted", "IW"],
};

export async function peopleView(main) {
  const title = h("h1", { tabindex: -1 }, "People");
  const body = h("div", {});
  const search = h("input", { id: "search", type: "search", autocomplete: "off", oninput: later });
  let waiting = null;
  main.append(title, h("p", { class: "field" }, h("label", { for: "search" }, "Search by name"), search), body);
  await refresh();

  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(() => refresh(), 200);
  }

  async function refresh(message) {
    const text = search.value.trim();
    const people = (await api.people(text, MAX_SHOWN + 1)).sort(byName);
    if (text !== search.value.trim()) return; // typed on meanwhile
    body.replaceChildren(...(people.length ? [h("ul", { class: "people" }, people.slice(0, MAX_SHOWN).map(person)),
      people.length > MAX_SHOWN && h("p", {}, `More than ${MAX_SHOWN} people: type more of the name.`)].filter(Boolean)
      : [h("div", { class: "empty" }, circles(null, 120), h("p", {}, text ? "No person has this name." : "There are no people yet."),
        h("a", { class: "button primary", href: "#/enrol" }, "Enrol"))]));
    if (message) { announce(message); title.focus(); }
  }

  function person(p) {
    const name = p.userId || p.profileId;
    const [state, kind] = STATES[p.state] ?? [p.state, null];
    const who = encodeURIComponent(p.profileId);
    const act = async (question, text, yes, work, message) => {
      if (!(await confirm(question, text, yes))) return;
      try {
        await work(p.profileId);
        await refresh(message);
      } catch (error) {
        announce(error.message);
        card.querySelector(".problem").textContent = error.message;
      }
    };
    const card = h("li", { class: "person" }, circles(kind, 60),
      h("div", { class: "about" }, h("h2", {}, name), h("p", { class: "state" }, p.lockedUntil ? `${state}, locked after rejections` : state),
        p.phrases?.length > 0 && h("p", { class: "phrases" }, p.phrases.join(" · "))),
      h("dl", { class: "facts" }, p.state === "opted_out" ? [h("dt", {}, "Opted out"), h("dd", {}, when(p.updated))] : [
        h("dt", {}, "Recordings"),
          h("dd", {}, p.remainingEnrollmentsCount > 0 ? `${p.enrollmentsCount} of ${p.enrollmentsCount + p.remainingEnrollmentsCount}` : p.enrollmentsCount),
        h("dt", {}, "Speech"), h("dd", {}, `${(p.speechLength ?? 0).toFixed(1)} s`),
        h("dt", {}, "Since"), h("dd", {}, when(p.created)), h("dt", {}, "Used"), h("dd", {}, when(p.lastUsed))]),
      h("p", { class: "row actions" },
        ["enrolled", "stale"].includes(p.state) && h("a", { class: "button quiet small", href: `#/verify?who=${who}`,
          "aria-label": `Verify ${name}` }, "Verify"),
        !["opted_out", "enrolled"].includes(p.state) && h("a", { class: "button quiet small",
          href: `#/enrol?who=${who}`, "aria-label": `Enrol ${name}` }, "Enrol"),
        p.lockedUntil && h("button", { type: "button", class: "quiet small", "aria-label": `Unlock ${name}`,
          onclick: () => api.unlock(p.profileId).then(() => refresh(`${name} is unlocked.`)) }, "Unlock"),
        p.state !== "opted_out" && h("button", { type: "button", class: "quiet small", "aria-label": `Opt ${name} out`,
          onclick: () => act(`Opt ${name} out?`,
            "Their voice is erased at once; the name stays, marked as not to be verified by voice.",
            "Opt out", api.optOut, `${name} has opted out.`) }, "Opt out"),
        h("button", { type: "button", class: "quiet small", "aria-label": `Delete ${name}`,
          onclick: () => act(`Delete ${name}?`,
            "Everything stored about this voice is erased at once. This cannot be undone.", "Delete",
            api.remove, `${name} is deleted.`) }, "Delete")),
      h("p", { class: "problem", role: "alert" }));
    return card;
  }
  return null;
}
