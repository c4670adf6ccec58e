"""Where snippets come from: sources that propose text of other files, and the choice among their proposals."""
