/** The words that this extension shares with the server: `lsp/settings.py`, `lsp/status.py` and
 * `lsp/hello.py` have them too, and a test of the repository holds both sides together. */

export const SECTION = "sspecAssist";
export const STATUS_METHOD = "sspecAssist/status";

/** The settings that the server is told; the others are the extension's own. */
export const SERVER_SETTINGS: readonly string[] = [
  "enabled",
  "languages",
  "debounceMs",
  "multiline",
  "maxTokens",
  "ignore",
  "snippets",
  "logCode",
];

/** The settings that decide which server is started. */
export const START_SETTINGS: readonly string[] = ["path", "model", "arguments"];
