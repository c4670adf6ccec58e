"""midfill without an editor: a language server's process and session, and a private engine or core."""
