"""Next edits: what the user will change, not only what comes next at the cursor; values and pure functions alone."""
