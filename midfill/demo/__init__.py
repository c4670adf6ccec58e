"""`midfill demo`: a language server and a core at work on a sample file, key by key, with what each key costs."""
