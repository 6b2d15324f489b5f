/** What the status bar says. Pure: a situation in, words out. */

export type State = "loading" | "ready" | "paused" | "asleep" | "failed" | "away" | "off";

/** What the server tells as `sspecAssist/status`. */
export interface Status {
  readonly state: State;
  readonly text: string;
  readonly model: string;
  readonly alpha: number | null;
  readonly timesPlain: number | null;
  readonly paused: boolean;
  readonly plainTokensPerS: number | null;
  readonly notice: string;
}

export type Situation =
  | { readonly kind: "missing"; readonly looked: readonly string[] }
  | { readonly kind: "starting" }
  | { readonly kind: "stopped"; readonly reason: string }
  | { readonly kind: "told"; readonly status: Status };

/** The language of the active editor, and whether the settings allow it. */
export interface Language {
  readonly id: string;
  readonly allowed: boolean;
}

export interface Shown {
  readonly text: string;
  readonly tooltip: string;
  readonly warning: boolean;
}

const NAME = "sspec";

export function shown(situation: Situation, language: Language | undefined): Shown {
  switch (situation.kind) {
    case "missing":
      return {
        text: `$(warning) ${NAME} not found`,
        tooltip:
          "The program sspec-assist was not found. " +
          `Set sspecAssist.path. Looked at: ${situation.looked.join(", ") || "no place at all"}.`,
        warning: true,
      };
    case "starting":
      return { text: `$(sync~spin) ${NAME}`, tooltip: "sspec-assist starts.", warning: false };
    case "stopped":
      return { text: `$(error) ${NAME} stopped`, tooltip: situation.reason, warning: true };
    case "told":
      return told(situation.status, language);
  }
}

function told(status: Status, language: Language | undefined): Shown {
  if (status.state !== "off" && language !== undefined && !language.allowed) {
    return {
      text: `$(circle-slash) ${NAME}`,
      tooltip: `Completions are off for ${language.id}.`,
      warning: false,
    };
  }
  return {
    text: label(status),
    tooltip: [status.text, figures(status), status.notice].filter(Boolean).join("\n"),
    warning: status.state === "failed" || status.state === "away",
  };
}

function label(status: Status): string {
  switch (status.state) {
    case "loading":
      return `$(sync~spin) ${[NAME, percent(status.text)].filter(Boolean).join(" ")}`;
    case "ready":
      return [`$(check) ${NAME}`, ...short(status)].join(" ");
    case "paused":
      return `$(debug-pause) ${NAME} waits`;
    case "asleep":
      return `$(circle-outline) ${NAME}`;
    case "failed":
      return `$(error) ${NAME} failed`;
    case "away":
      return `$(debug-disconnect) ${NAME} away`;
    case "off":
      return `$(circle-slash) ${NAME} off`;
  }
}

/** α and × plain, as far as they are known. */
function short(status: Status): string[] {
  const alpha = status.alpha === null ? [] : [`α ${status.alpha.toFixed(2)}`];
  const times = status.timesPlain === null ? [] : [`${status.timesPlain.toFixed(2)} ×`];
  return [...alpha, ...times];
}

function figures(status: Status): string {
  const parts: string[] = [];
  if (status.alpha !== null) {
    parts.push(`α ${status.alpha.toFixed(2)} (accepted ÷ tested draft tokens)`);
  }
  if (status.timesPlain !== null) {
    const plain = status.plainTokensPerS;
    const measured = plain === null ? "" : ` (plain: ${plain.toFixed(1)} tok/s)`;
    parts.push(`${status.timesPlain.toFixed(2)} × plain${measured}`);
  }
  return parts.join(" · ");
}

function percent(text: string): string {
  return /\d+ %/.exec(text)?.[0] ?? "";
}
