"""What became of suggestions: acceptance, and statistics kept on this machine."""
