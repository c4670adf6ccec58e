"""The outcome of suggestions: acceptance, and statistics kept on this machine."""
