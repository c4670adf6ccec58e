"""`midfill demo`: shows a language server and a core at work on a sample file, key by key, with each key's cost."""
