"""The inference core as the language server sees it: found or started, connected to, watched and replaced."""
