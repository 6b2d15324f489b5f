/** The user's settings, as far as this side needs to understand them. Knows nothing of VS Code. */

import { SERVER_SETTINGS } from "./names";

export type Languages = Readonly<Record<string, boolean>>;

/** Whether a language is completed; `*` speaks for those that are not named. */
export function allows(languages: Languages, language: string): boolean {
  return languages[language] ?? languages["*"] ?? true;
}

/** What the server is told of the section: its own settings and nothing else. */
export function forServer(section: unknown): Record<string, unknown> {
  const given = typeof section === "object" && section !== null ? section : {};
  return Object.fromEntries(
    Object.entries(given).filter(([name]) => SERVER_SETTINGS.includes(name)),
  );
}

/** The arguments that the program is started with. */
export function startArguments(model: string, more: readonly string[]): string[] {
  return ["lsp", ...(model.trim() ? ["--model", model.trim()] : []), ...more];
}
