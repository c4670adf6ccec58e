"""The index of a workspace folder: definitions of its files, kept by a process of its own, in SQLite."""
