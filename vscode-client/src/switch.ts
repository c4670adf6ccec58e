// Decides whether midfill suggests in this workspace: the user's switch here, or else the setting.

import type { Memento } from "vscode";

const KEY = "switchedOn";

/** Uses VS Code's own storage for the workspace, so that no file of the repository changes. */
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

  /** Whether the user has switched suggestions off here, which overrides every setting. */
  get isSwitchedOff(): boolean {
    return this.memory.get<boolean>(KEY) === false;
  }

  /** Whether a language server is needed; a running one stays while suggestions are switched off here. */
  get needsServer(): boolean {
    return this.isOn || this.setting();
  }

  async toggle(): Promise<void> {
    await this.memory.update(KEY, !this.isOn);
  }

  /** Follow the setting again, after the user has changed it. */
  async followSetting(): Promise<void> {
    await this.memory.update(KEY, undefined);
  }
}
