// Log-in: a name, a phrase, and yes, no or try again. It shows no names, no scores and no choices of strictness.

import { Refusal, api } from "./api.js";
import { SOUND_REASONS, booth } from "./booth.js";
import { announce, h } from "./dom.js";
import { applyTheme, openSettings } from "./settings.js";

const main = document.getElementById("content");
const ANSWERS = {
  yes: ["✓", "Yes", "Voice and phrase match: you are logged in."],
  no: ["✕", "No", "This log-in was refused. Try again, or log in another way."],
  again: ["↻", "Try again", "Say the whole phrase once more, exactly as you enrolled it."],
};
let leave = null;

function view(...content) {
  leave?.();
  leave = null;
  main.replaceChildren(...content);
}

function askName(name = "", problem = "") {
  const input = h("input", { id: "who", autocomplete: "username", spellcheck: "false", required: true, value: name });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) begin(input.value.trim()).catch((error) => fail(input.value.trim(), error));
  };
  view(h("h1", { tabindex: -1 }, "Log in"), h("form", { class: "claim", onsubmit: submit },
    h("p", { class: "field" }, h("label", { for: "who" }, "Your name"), input),
    problem && h("p", { class: "problem", role: "alert" }, problem),
    h("p", { class: "row" }, h("button", { class: "primary" }, "Continue"))));
  input.focus();
}

function fail(name, error) {
  if (!(error instanceof Refusal)) console.error(error);
  askName(name, error.status === 401 ? "This page needs an API key: ask its operator for one." : error.message);
}

/** Ask for the phrase. A name that nobody has is refused after the recording, like any other wrong claim: if challenges
 * are required, it gets one too. */
async function begin(name) {
  const policy = await api.key();
  const needsChallenge = ["challenge", "either"].includes(policy.require);
  const challenge = needsChallenge ? await api.challengeOf(name) : null;
  const person = challenge ?? await api.person(name);
  const hint = challenge ? "Say these words now" : "Say your pass-phrase";
  const stage = booth({ phrase: challenge?.phrases[0], hint, onsound: (sound) => judge(name, person, challenge, sound) });
  const other = h("button", { type: "button", class: "quiet", onclick: () => askName() }, "I am somebody else");
  view(h("h1", { tabindex: -1 }, `Hello, ${name}`), stage, h("p", { class: "row centre" }, other));
  leave = stage.leave;
  main.querySelector("h1").focus();
}

async function judge(name, person, challenge, sound) {
  if (!person) { show("no", name); return; }
  try {
    const fields = challenge ? { challengeId: challenge.challengeId } : {};
    const { decision, reason } = await api.verify(person.profileId, sound, fields);
    if (decision === "accept") show("yes", name);
    else if (decision === "inconclusive" && SOUND_REASONS[reason]) show("again", name, SOUND_REASONS[reason][1]);
    else if (decision === "inconclusive" && reason !== "not_enough_evidence" && reason) show("no", name);
    else show(decision === "inconclusive" ? "again" : "no", name);
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 401) throw error;
    if (error.status === 429) show("no", name, "There were too many attempts. Wait a while, or log in another way.");
    else show("again", name, error.status === 409 ? undefined : error.message);
  }
}

function show(answer, name, advice) {
  const [sign, heading, sentence] = ANSWERS[answer];
  const title = h("h1", { tabindex: -1 }, heading);
  const next = answer === "yes" ? h("button", { type: "button", class: "quiet", onclick: () => askName() }, "Log out")
    : h("button", { type: "button", class: "primary",
      onclick: () => begin(name).catch((error) => fail(name, error)) }, "Try again");
  view(h("section", { class: "answer", "data-answer": answer }, h("p", { class: "sign", "aria-hidden": "true" }, sign),
    title, h("p", { class: "advice" }, advice ?? sentence), h("p", { class: "row centre" }, next)));
  announce(`${heading}. ${advice ?? sentence}`);
  title.focus();
}

async function about() {
  const notice = document.getElementById("notice");
  try {
    const { demoNetwork, notice: text } = await api.health();
    notice.textContent = text ?? (demoNetwork ? "Demonstration: this network protects nothing." : "");
  } catch { notice.textContent = ""; }
  notice.hidden = !notice.textContent;
}

applyTheme();
document.addEventListener("key-wanted", () => openSettings(() => askName(),
  "This page requires an API key. Its operator creates one with mvplda serve key."));
about();
askName();
