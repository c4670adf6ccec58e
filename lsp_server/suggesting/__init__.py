"""From a request to suggestions: from the last suggestion if possible, else from the core; the latest request wins."""
