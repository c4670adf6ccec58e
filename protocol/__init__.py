"""What the language server and the core share: values, wire format, settings and meeting place; no torch, no pygls."""
