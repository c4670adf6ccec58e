// The key of this page: from the link that opened it, or from before the page was loaded again.

const KEPT = "midfill.key";

/** The key; undefined if neither the link nor an earlier load gives one. The address bar no longer shows it then. */
export async function pageKey(): Promise<string | undefined> {
  const shown = [location.hash.slice(1), sessionStorage.getItem(KEPT) ?? ""];
  history.replaceState(null, "", location.pathname);
  for (const token of shown.filter((one) => one !== "")) {
    const response = await fetch("/pages/key", { headers: bearer(token) });
    if (response.ok) {
      const { key } = (await response.json()) as { key: string };
      sessionStorage.setItem(KEPT, key);
      return key;
    }
  }
  return undefined;
}

export function bearer(key: string): Record<string, string> {
  return { Authorization: `Bearer ${key}` };
}
