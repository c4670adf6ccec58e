"""Documents and their parts: positions, spans, brackets, languages, notebook cells."""
