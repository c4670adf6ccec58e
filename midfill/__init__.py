"""The command line: wires the language server, the core, and the replay."""
