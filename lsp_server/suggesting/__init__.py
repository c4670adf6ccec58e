"""From a request to suggestions: what is at hand first, then the core; the latest request wins."""
