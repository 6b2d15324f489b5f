/** What the status bar's menu offers. Pure: a situation in, entries out. */

import type { Language, Situation } from "./status";

export type Action = "toggle" | "toggleLanguage" | "restart" | "showLog" | "settings" | "setPath";

export interface Entry {
  readonly action: Action;
  readonly label: string;
}

export function menu(
  situation: Situation,
  enabled: boolean,
  language: Language | undefined,
): Entry[] {
  const entries: Entry[] = [];
  if (situation.kind === "missing") {
    entries.push({ action: "setPath", label: "$(folder-opened) Set where sspec-assist is…" });
  }
  entries.push({
    action: "toggle",
    label: enabled ? "$(circle-slash) Turn completions off" : "$(check) Turn completions on",
  });
  if (enabled && language !== undefined) {
    entries.push({
      action: "toggleLanguage",
      label: language.allowed
        ? `$(circle-slash) Turn completions off for ${language.id}`
        : `$(check) Turn completions on for ${language.id}`,
    });
  }
  entries.push(
    { action: "restart", label: "$(refresh) Restart" },
    { action: "showLog", label: "$(output) Show log" },
    { action: "settings", label: "$(gear) Settings" },
  );
  return entries;
}
