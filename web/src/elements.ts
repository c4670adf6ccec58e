// Finds and makes elements.

/** The element with this id, which the page's HTML has. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) {
    throw new Error(`the page has no element #${id}`);
  }
  return found;
}

export function element(tag: string, className = "", text = ""): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** Show a message above the page; the command, if there is one, stands behind it. */
export function notice(message: string, command = ""): void {
  const shown = byId("notice");
  shown.hidden = message === "";
  shown.replaceChildren(message, " ", element("code", "", command));
}
