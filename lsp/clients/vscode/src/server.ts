/** The running language server: start, stop, start again, and what it says of itself.
 *
 * Nothing here opens a message box; what went wrong is a situation, which the status bar shows, and
 * a line in the log. Knows nothing of the status bar. */

import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import * as vscode from "vscode";
import {
  CloseAction,
  DidChangeConfigurationNotification,
  type DocumentSelector,
  ErrorAction,
  type ErrorHandler,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  State,
} from "vscode-languageclient/node";
import { SECTION, STATUS_METHOD } from "./names";
import { Restarts } from "./restarts";
import { forServer } from "./settings";
import type { Situation, Status } from "./status";

const DOCUMENTS: DocumentSelector = [
  { scheme: "file" },
  { scheme: "untitled" },
  { scheme: "vscode-notebook-cell" },
];

export interface Start {
  readonly program: string;
  readonly arguments: readonly string[];
}

export class Server {
  private client: LanguageClient | undefined;
  private readonly restarts = new Restarts();

  constructor(
    private readonly log: vscode.LogOutputChannel,
    private readonly tell: (situation: Situation) => void,
  ) {}

  /** Ends the server that runs, if any, and starts this one. */
  async start(start: Start): Promise<void> {
    await this.stop();
    this.restarts.clear();
    this.log.info(`starting ${start.program} ${start.arguments.join(" ")}`);
    this.tell({ kind: "starting" });
    const client = new LanguageClient(
      SECTION,
      "sspec-assist",
      { command: start.program, args: [...start.arguments] },
      this.options(),
    );
    this.client = client;
    client.onNotification(STATUS_METHOD, (status: Status) => {
      this.tell({ kind: "told", status });
    });
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Starting && this.client === client) {
        this.tell({ kind: "starting" });
      }
    });
    try {
      await client.start();
    } catch (error) {
      this.stopped(`sspec-assist could not be started: ${sentence(error)}`);
    }
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    try {
      await client?.dispose();
    } catch (error) {
      // A server that never came up, or is gone already, can't be asked to end.
      this.log.info(`while ending the server: ${sentence(error)}`);
    }
  }

  private options(): LanguageClientOptions {
    return {
      documentSelector: DOCUMENTS,
      outputChannel: this.log,
      // What the server says there is its log; the library would take each line for an error.
      stdioOptions: { stdout: intoLog, stderr: intoLog },
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      errorHandler: this.errorHandler(),
      initializationOptions: () => forServer(vscode.workspace.getConfiguration(SECTION)),
      initializationFailedHandler: () => false,
      middleware: {
        workspace: {
          configuration: async (params, token, next) => {
            const answers = await next(params, token);
            return Array.isArray(answers)
              ? answers.map((answer, index) =>
                  params.items[index]?.section === SECTION ? forServer(answer) : answer,
                )
              : answers;
          },
          // Without values the server asks for them, and is told through `configuration` above.
          didChangeConfiguration: async () => {
            await this.client?.sendNotification(DidChangeConfigurationNotification.type, {
              settings: null,
            });
          },
        },
      },
    };
  }

  private errorHandler(): ErrorHandler {
    return {
      error: () => ({ action: ErrorAction.Continue, handled: true }),
      closed: () => {
        if (this.client !== undefined && this.restarts.mayStart(Date.now())) {
          this.log.warn("the server ended and is started again");
          return { action: CloseAction.Restart, handled: true };
        }
        this.stopped("sspec-assist ended several times in a row. The log says why.");
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    };
  }

  private stopped(reason: string): void {
    this.log.error(reason);
    this.tell({ kind: "stopped", reason });
  }
}

function intoLog(input: Readable, log: vscode.LogOutputChannel): void {
  createInterface({ input }).on("line", (line) => log.info(line));
}

function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
