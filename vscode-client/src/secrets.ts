// The tokens of cores on other machines, in VS Code's secret storage.

import type * as vscode from "vscode";

/**
 * A token belongs to the address that it was given for: a workspace that names another address does not get it.
 */
export class CoreTokens {
  /** What is stored for the address in force; secret storage answers late, settings are wanted at once. */
  private readonly known = new Map<string, string | undefined>();

  private readonly secrets: vscode.SecretStorage;

  constructor(secrets: vscode.SecretStorage) {
    this.secrets = secrets;
  }

  get(address: string): string | undefined {
    return this.known.get(address);
  }

  async load(address: string): Promise<void> {
    if (address !== "" && !this.known.has(address)) {
      this.known.set(address, await this.secrets.get(key(address)));
    }
  }

  /** An empty token forgets the one before. */
  async set(address: string, token: string): Promise<void> {
    this.known.set(address, token === "" ? undefined : token);
    await (token === "" ? this.secrets.delete(key(address)) : this.secrets.store(key(address), token));
  }
}

function key(address: string): string {
  return `coreToken ${address}`;
}
