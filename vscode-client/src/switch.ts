// Whether midfill suggests in this workspace: the setting, unless the user has switched it here.

import type { Memento } from "vscode";

const KEY = "switchedOn";

/** Kept in VS Code's own storage for the workspace, so that no file of the repository changes. */
export class Switch {
  private readonly memory: Memento;
  private readonly setting: () => boolean;

  constructor(memory: Memento, setting: () => boolean) {
    this.memory = memory;
    this.setting = setting;
  }

  get isOn(): boolean {
    return this.memory.get<boolean>(KEY) ?? this.setting();
  }

  /** Whether a language server is needed; one that runs already stays while suggestions are switched off here. */
  get needsServer(): boolean {
    return this.isOn || this.setting();
  }

  async toggle(): Promise<void> {
    await this.memory.update(KEY, !this.isOn);
  }

  /** The user has changed the setting: it counts again. */
  async followSetting(): Promise<void> {
    await this.memory.update(KEY, undefined);
  }
}
