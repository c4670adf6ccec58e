"""Web pages in the browser: their files, the keys that open them, and what the dashboard shows."""
