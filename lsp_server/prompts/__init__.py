"""From a cursor to the text of a prompt: anchors, windows and snippets of other files."""
