import { readFile } from 'node:fs/promises';

type Handler = (path: string, body?: unknown) => Promise<string>;

/** Routes by prefix; see {@link Router.find}. */
export class Router {
  private readonly routes = new Map<string, Handler>();

  add(prefix: string, handler: Handler): void {
    this.routes.set(prefix.replace(/[)\]]+$/g, ''), handler);
  }

  async find(path: string): Promise<string | undefined> {
    for (const [prefix, handler] of this.routes) {
      if (path.startsWith(prefix)) {
        return await handler(path.slice(prefix.length), { at: Date.now() });
      } else if (prefix === '*') {
        return `<p>${path ? `(${path})` : 'nothing'}</p>`;
      }
    }
    return undefined;
  }
}

export const files = new Router();
files.add('/files/', async (path) => {
  const text = await readFile(path, 'utf8');
  return text.split('\n').map((line) => line.trim()).join(' ');
});
