// The tokens of cores on other machines, in VS Code's secret storage.

import type { SecretStorage } from "vscode";

/**
 * A token belongs to the address that it was given for: a workspace that names another address does not get it.
 */
export class CoreTokens {
  /** What was stored for the last address; secret storage answers late, settings are wanted at once. */
  private loaded: { address: string; token: string | undefined } | undefined;

  private readonly secrets: SecretStorage;

  constructor(secrets: SecretStorage) {
    this.secrets = secrets;
  }

  get(address: string): string | undefined {
    return this.loaded?.address === address ? this.loaded.token : undefined;
  }

  /** Read the address's token as it is now: another window may have set it. */
  async load(address: string): Promise<void> {
    const token = address === "" ? undefined : await this.secrets.get(key(address));
    this.loaded = { address, token };
  }

  /** Every window hears of it from the secret storage. An empty token forgets the one before. */
  async set(address: string, token: string): Promise<void> {
    await (token === "" ? this.secrets.delete(key(address)) : this.secrets.store(key(address), token));
  }
}

function key(address: string): string {
  return `coreToken ${address}`;
}
