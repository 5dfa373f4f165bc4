// Enrolment: consent, then a name and a phrase, then three recordings.

import { api } from "./api.js";
import { circles } from "./draw.js";
import { announce, h } from "./dom.js";
import { SOUND_REASONS, booth, qualityList } from "./booth.js";
import { play } from "./recorder.js";

const CONSENT = [
  "Your voice is biometric data. If you agree, this server computes numbers from your recordings and stores them, to compare later recordings with. The sound itself is not stored.",
  "Every later attempt in your name is recorded in the audit: its time, the decision and the reason. The entry contains no sound and no voice data.",
  "You can withdraw your consent at any time, under People: deletion and opting out take effect at once.",
];
const REASONS = {
  wrong_phrase: "The phrase does not match. Say exactly what is on the screen.",
  wrong_speaker: "This voice differs from the earlier recordings. The same person must make all of them.",
  suspected_replay: "This recording was sent before. Record the phrase again.",
};
const why = ({ reason, message }) => SOUND_REASONS[reason]?.[1] ?? REASONS[reason] ?? message;

export async function enrolView(main, query) {
  const body = h("div", { class: "steps" });
  main.append(body);
  let leave = null;
  const step = (number, title, ...content) => {
    leave?.();
    leave = null;
    const heading = h("h1", { tabindex: -1 }, title);
    body.replaceChildren(h("ol", { class: "trail", "aria-label": "Steps" },
      ["Consent", "Phrase", "Recordings"].map((text, i) =>
      h("li", { class: i < number ? "past" : "", "aria-current": i === number ? "step" : null }, text))), heading,
        ...content);
    if (number) heading.focus();
  };

  function consent() {
    const box = h("input", { type: "checkbox", id: "agree", required: true });
    step(0, "What is stored about you",
      h("form", { class: "column", onsubmit: (event) => { event.preventDefault(); phrase(); } },
      h("ul", { class: "plain" }, CONSENT.map((text) => h("li", {}, text))),
      h("p", { class: "check" }, box,
        h("label", { for: "agree" }, "I have read this and agree to this use of my voice.")),
      h("p", { class: "row" }, h("button", { class: "primary" }, "Continue"),
        h("a", { class: "button quiet", href: "#/verify" }, "Cancel"))));
  }

  async function phrase() {
    const { knownPhrases: known = [] } = await api.model().catch(() => ({}));
    const OWN = "own";
    const name = h("input", { id: "name", required: true, maxlength: 60, autocomplete: "off", spellcheck: "false" });
    const own = h("p", { class: "field", hidden: known.length > 0 }, h("label", { for: "own" }, "Your own phrase"),
      h("input", { id: "own", minlength: 8, maxlength: 120, required: !known.length, "aria-describedby": "own-help" }),
      h("small", { id: "own-help" },
        "Four to six words, about two seconds of speech. It need not be secret, because the voice is checked too."));
    const choose = h("select",
      { id: "which", onchange: () => { own.hidden = choose.value !== OWN; own.querySelector("input").required = !own.hidden; } },
      known.map((text) => h("option", { value: text }, text)), h("option", { value: OWN }, "A phrase of my own …"));
    const problem = h("p", { class: "problem", role: "alert" });
    step(1, "Your name and your phrase", h("form", { class: "column", onsubmit: submit },
      h("p", { class: "field" }, h("label", { for: "name" }, "Name"), name),
      known.length > 0 && h("p", { class: "field" }, h("label", { for: "which" }, "Phrase"), choose), own, problem,
      h("p", { class: "row" }, h("button", { class: "primary" }, "Continue"))));
    async function submit(event) {
      event.preventDefault();
      const text = own.hidden ? choose.value : own.querySelector("input").value.trim();
      try {
        const created = await api.create({ userId: name.value.trim(), phrase: text,
          consent: { given: true, text: CONSENT.join(" ") } });
        recordings(created, text);
      } catch (error) {
        problem.textContent = error.message;
      }
    }
  }

  function recordings(profile, text) {
    const required = profile.enrollmentsCount + profile.remainingEnrollmentsCount || 3;
    const done = []; // replies of the server, in order, with their recordings
    let left = profile.remainingEnrollmentsCount ?? required;
    const list = h("ol", { class: "recordings", "aria-label": "Recordings" });
    const holder = h("div", {});
    step(2, left ? "Say it three times" : "One more recording", h("div", { class: "split recordings-and-stage" }, holder,
      h("div", { class: "side" },
      h("p", {}, "Speak as you usually do. Small differences between the recordings help: they show how much your voice varies. Recordings of a second day help more than additional ones of the same day."), list)));
    leave = () => holder.firstChild?.leave?.();
    refresh();
    next();

    function next() {
      const count = required - left + 1;
      holder.replaceChildren(booth({ phrase: text, hint: left ? `Recording ${count} of ${required}` : "One more recording",
        onsound: add }));
    }

    async function add(sound, recording) {
      try {
        const answer = await api.enrol(profile.profileId, sound, text);
        left = answer.remainingEnrollmentsCount;
        done.push({ answer, recording });
        announce(left ? `Recording accepted. ${left} to go.` : "That was the last recording. You are enrolled.");
        refresh();
        if (left > 0) next(); else finish();
        holder.querySelector("button, a")?.focus();
      } catch (error) {
        if (error.status !== 422) throw error;
        refresh({ error });
        throw new Error("This recording was refused. Please try again.");
      }
    }

    async function redo(entry) {
      const { answer } = entry;
      await api.removeRecording(profile.profileId, answer.enrollmentId);
      done.splice(done.indexOf(entry), 1);
      left += 1;
      announce("The recording was removed.");
      refresh();
      next();
      holder.querySelector("button")?.focus();
    }

    function refresh(failed) {
      const rows = done.map((entry, i) => h("li", { class: "recording accepted" }, h("span", { class: "nth" }, `Recording ${i + 1}`),
        qualityList(entry.answer.quality, entry.answer),
        h("p", { class: "row" }, entry.recording && h("button", { type: "button", class: "quiet small",
          onclick: () => play(entry.recording), "aria-label": `Play recording ${i + 1}` }, "Play"),
          h("button", { type: "button", class: "quiet small", onclick: () => redo(entry),
            "aria-label": `Redo recording ${i + 1}` }, "Redo"))));
      if (failed) rows.push(h("li", { class: "recording refused" }, h("span", { class: "nth" }, "Refused"),
        qualityList(failed.error.problem.quality, failed.error.problem),
          h("p", { class: "problem small" }, why(failed.error))));
      const open = Math.max(0, required - done.length - (failed ? 1 : 0));
      rows.push(...Array.from({ length: Math.max(0, Math.min(open, left - (failed ? 1 : 0))) },
        (_, i) => h("li", { class: "recording open" }, h("span", { class: "nth" },
        `Recording ${done.length + i + 1 + (failed ? 1 : 0)}`))));
      list.replaceChildren(...rows);
    }

    function finish() {
      body.querySelector("h1").textContent = "Done";
      body.querySelectorAll(".trail li").forEach((item) => { item.className = "past"; item.removeAttribute("aria-current"); });
      const title = h("h2", { tabindex: -1 }, `You are enrolled, ${profile.userId || "friend"}`);
      holder.replaceChildren(h("section", { class: "stage done" }, circles("TC", 132), title,
        h("p", {}, "From now on your voice and this phrase together are the key."), h("p", { class: "phrase" }, text),
        h("p", { class: "row centre" }, h("a", { class: "button primary",
          href: `#/verify?who=${encodeURIComponent(profile.profileId)}` }, "Try it"))));
    }
  }

  function begin(old) {
    step(1, "Enrol again", h("div", { class: "column" }, h("p", {}, old.state === "stale"
      ? "The model was replaced after these recordings were made. They will be removed; record the phrase again."
      : "This profile was not used for so long that it has expired. Its recordings will be removed; record the phrase again."),
    h("p", { class: "row" }, h("button", { type: "button", class: "primary",
      onclick: async () => recordings(await api.reset(old.profileId), old.phrases?.[0] ?? "") }, "Start again"))));
  }

  const again = query.get("who");
  const profile = again && await api.profile(again);
  if (profile && ["stale", "expired"].includes(profile.state)) begin(profile);
  else if (profile) recordings(profile, profile.phrases?.[0] ?? "");
  else consent();
  return () => leave?.();
}
