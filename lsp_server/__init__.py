"""The editor's side: documents, anchors, prompts, LSP features and the client of the core; never imports torch."""
