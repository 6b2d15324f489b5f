/** The extension: puts server, status bar, menu and settings together. */

import * as fs from "node:fs";
import * as os from "node:os";
import * as vscode from "vscode";
import { type Found, locate } from "./locate";
import { type Action, menu } from "./menu";
import { SECTION, START_SETTINGS } from "./names";
import { Server } from "./server";
import { allows, startArguments } from "./settings";
import { type Language, type Situation, shown } from "./status";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const assistant = new Assistant();
  server = assistant.server;
  context.subscriptions.push(assistant);
  assistant.start();
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

class Assistant implements vscode.Disposable {
  readonly server: Server;
  private readonly log = vscode.window.createOutputChannel("sspec-assist", { log: true });
  private readonly item = vscode.window.createStatusBarItem(
    "sspecAssist.status",
    vscode.StatusBarAlignment.Right,
    100,
  );
  private readonly disposables: vscode.Disposable[] = [this.log, this.item];
  private situation: Situation = { kind: "starting" };
  private started: Promise<void> = Promise.resolve();

  constructor() {
    this.server = new Server(this.log, (situation) => {
      this.situation = situation;
      this.render();
    });
    this.item.name = "sspec-assist";
    this.item.command = "sspecAssist.menu";
    this.item.show();
    this.listen();
  }

  /** Starts the server, or starts it anew; one start at a time. One that fails is logged and does
   * not keep the next from being tried. */
  start(): void {
    this.started = this.started
      .then(() => this.startNow())
      .catch((error: unknown) => this.log.error(`the start failed: ${String(error)}`));
  }

  private async startNow(): Promise<void> {
    const { program, looked } = this.find();
    if (program === undefined) {
      await this.server.stop();
      this.situation = { kind: "missing", looked };
      this.log.warn(shown(this.situation, undefined).tooltip);
      this.render();
      return;
    }
    const settings = vscode.workspace.getConfiguration(SECTION);
    await this.server.start({
      program,
      arguments: startArguments(
        settings.get<string | null>("model") ?? "",
        settings.get<string[] | null>("arguments") ?? [],
      ),
    });
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private listen(): void {
    const commands: Record<string, () => unknown> = {
      menu: () => this.openMenu(),
      toggle: () => this.toggle(),
      toggleLanguage: () => this.toggleLanguage(),
      restart: () => this.start(),
      showLog: () => this.log.show(),
    };
    for (const [name, command] of Object.entries(commands)) {
      this.disposables.push(vscode.commands.registerCommand(`${SECTION}.${name}`, command));
    }
    this.disposables.push(
      vscode.window.onDidChangeActiveTextEditor(() => this.render()),
      vscode.workspace.onDidOpenTextDocument(() => this.render()),
      vscode.workspace.onDidGrantWorkspaceTrust(() => this.startIfMissing()),
      vscode.workspace.onDidChangeWorkspaceFolders(() => this.startIfMissing()),
      vscode.workspace.onDidChangeConfiguration((change) => {
        if (START_SETTINGS.some((name) => change.affectsConfiguration(`${SECTION}.${name}`))) {
          this.start();
        }
        this.render();
      }),
    );
  }

  private startIfMissing(): void {
    if (this.situation.kind === "missing") {
      this.start();
    }
  }

  private render(): void {
    const { text, tooltip, warning } = shown(this.situation, this.language());
    this.item.text = text;
    this.item.tooltip = tooltip;
    this.item.backgroundColor = warning
      ? new vscode.ThemeColor("statusBarItem.warningBackground")
      : undefined;
  }

  private async openMenu(): Promise<void> {
    const entries = menu(this.situation, this.enabled(), this.language());
    const chosen = await vscode.window.showQuickPick(entries, {
      title: "sspec-assist",
      placeHolder: shown(this.situation, this.language()).tooltip,
    });
    const actions: Record<Action, () => unknown> = {
      toggle: () => this.toggle(),
      toggleLanguage: () => this.toggleLanguage(),
      restart: () => this.start(),
      showLog: () => this.log.show(),
      settings: () => openSettings(SECTION),
      setPath: () => openSettings(`${SECTION}.path`),
    };
    await (chosen && actions[chosen.action]());
  }

  private async toggle(): Promise<void> {
    await write("enabled", !this.enabled());
  }

  private async toggleLanguage(): Promise<void> {
    const language = this.language();
    if (language !== undefined) {
      await write("languages", { ...languages(), [language.id]: !language.allowed });
    }
  }

  private find(): Found {
    return locate({
      configured: vscode.workspace.getConfiguration(SECTION).get<string | null>("path") ?? "",
      folders: (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath),
      trusted: vscode.workspace.isTrusted,
      searchPath: process.env["PATH"] ?? "",
      home: os.homedir(),
      windows: process.platform === "win32",
      isFile,
    });
  }

  private enabled(): boolean {
    return vscode.workspace.getConfiguration(SECTION).get<boolean>("enabled", true);
  }

  private language(): Language | undefined {
    const id = vscode.window.activeTextEditor?.document.languageId;
    return id === undefined ? undefined : { id, allowed: allows(languages(), id) };
  }
}

/** Also where a folder may not be searched: there is no program in it for this user. */
function isFile(file: string): boolean {
  try {
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

function languages(): Record<string, boolean> {
  return vscode.workspace.getConfiguration(SECTION).get<Record<string, boolean> | null>("languages") ?? {};
}

/** Changes a setting where it is set now, for the user if nowhere. */
async function write(name: string, value: unknown): Promise<void> {
  const settings = vscode.workspace.getConfiguration(SECTION);
  const target =
    settings.inspect(name)?.workspaceValue === undefined
      ? vscode.ConfigurationTarget.Global
      : vscode.ConfigurationTarget.Workspace;
  await settings.update(name, value, target);
}

async function openSettings(query: string): Promise<void> {
  await vscode.commands.executeCommand("workbench.action.openSettings", query);
}
