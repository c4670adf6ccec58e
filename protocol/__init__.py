"""Shared by the language server and the core: values, wire format, settings, address files; no torch, no pygls."""
