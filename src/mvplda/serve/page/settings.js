// Settings stored in this browser: microphone, count-in, theme. The API key is stored for this tab only.

import { h } from "./dom.js";
import { key } from "./api.js";

const STORAGE_KEY = "mvplda-settings";
const DEFAULTS = { device: "", countIn: 3, theme: "auto" };

export const settings = {
  get: () => ({ ...DEFAULTS, ...JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}") }),
  set: (changes) => localStorage.setItem(STORAGE_KEY, JSON.stringify({ ...settings.get(), ...changes })),
};

export function applyTheme() {
  const { theme } = settings.get();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

let opened = false;

/** The dialog; `onclosed` is called when something may have changed. */
export async function openSettings(onclosed, why) {
  if (opened) return; // several refusals may ask for a key at once
  opened = true;
  const now = settings.get();
  const devices = (await navigator.mediaDevices?.enumerateDevices?.().catch(() => [])) ?? [];
  const microphones = devices.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId && deviceId !== "default");
  const choice = (id, label, options, value) => h("p", { class: "field" }, h("label", { for: id }, label),
    h("select", { id }, options.map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) },
      text))));
  const dialog = h("dialog", { "aria-labelledby": "settings-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "settings-title" }, "Settings"),
      why && h("p", { class: "problem", role: "alert" }, why),
      h("p", { class: "field" }, h("label", { for: "key" }, "API key"),
        h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", value: key.get(),
          "aria-describedby": "key-help" }),
        h("small", { id: "key-help" }, "Only if the server requires one. It is deleted when this tab is closed.")),
      choice("device", "Microphone", [["", "System default"], ...microphones.map((m, i) => [m.deviceId,
        m.label || `Microphone ${i + 1}`])], now.device),
      choice("count-in", "Count-in", [[0, "None"], [1, "One beat"], [3, "Three beats"]], now.countIn),
      choice("theme", "Colours", [["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]], now.theme),
      h("p", { class: "row end" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close("no") },
        "Cancel"), h("button", { class: "primary", value: "yes" }, "Save"))));
  dialog.addEventListener("close", () => {
    opened = false;
    const value = (id) => dialog.querySelector(`#${id}`).value;
    if (dialog.returnValue === "yes") {
      key.set(value("key").trim());
      settings.set({ device: value("device"), countIn: Number(value("count-in")), theme: value("theme") });
      applyTheme();
      onclosed();
    }
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}
