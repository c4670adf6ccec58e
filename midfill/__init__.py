"""The command line: wires the language server, the core, the replay and the demo."""
