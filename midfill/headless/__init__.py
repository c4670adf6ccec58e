"""midfill without an editor: a language server's process and session, and an engine or core of one's own."""
