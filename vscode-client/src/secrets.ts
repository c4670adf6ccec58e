// The tokens of cores on other machines, in VS Code's secret storage.

import type { SecretStorage } from "vscode";

/**
 * A token belongs to the address that it was entered for: a workspace that names another address does not get it.
 */
export class CoreTokens {
  /** The stored token of the last address, cached since the secret storage is asynchronous and settings are not. */
  private loaded: { address: string; token: string | undefined } | undefined;

  private readonly secrets: SecretStorage;

  constructor(secrets: SecretStorage) {
    this.secrets = secrets;
  }

  get(address: string): string | undefined {
    return this.loaded?.address === address ? this.loaded.token : undefined;
  }

  /** Read the address's current token: another window may have set it. */
  async load(address: string): Promise<void> {
    const token = address === "" ? undefined : await this.secrets.get(key(address));
    this.loaded = { address, token };
  }

  /** Store the token; the secret storage notifies all windows. An empty token deletes the stored one. */
  async set(address: string, token: string): Promise<void> {
    await (token === "" ? this.secrets.delete(key(address)) : this.secrets.store(key(address), token));
  }
}

function key(address: string): string {
  return `coreToken ${address}`;
}
