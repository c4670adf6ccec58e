"""The sources of snippets, one to a module: each proposes text of other files for a place."""
