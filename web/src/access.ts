// The key of this page: from the link that opened it, or from before the page was loaded again.

const KEPT = "midfill.key";

/** The key; undefined if neither the link nor an earlier load gives one that is accepted. It leaves the address bar. */
export async function pageKey(): Promise<string | undefined> {
  const shown = [location.hash.slice(1), sessionStorage.getItem(KEPT) ?? ""];
  history.replaceState(null, "", location.pathname);
  for (const token of shown.filter((one) => one !== "")) {
    const response = await fetch("/pages/key", { headers: bearer(token) }).catch(noAnswer);
    if (response?.ok === true) {
      const { key } = (await response.json()) as { key: string };
      sessionStorage.setItem(KEPT, key);
      return key;
    }
  }
  return undefined;
}

/** What served the page may have ended since. */
function noAnswer(): undefined {
  return undefined;
}

function bearer(key: string): Record<string, string> {
  return { Authorization: `Bearer ${key}` };
}
