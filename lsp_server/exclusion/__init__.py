"""Which documents must not enter prompts: ignore files and the built-in list of secret files."""
