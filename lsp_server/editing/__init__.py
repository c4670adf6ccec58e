"""Documents and what they are made of: positions, spans, brackets, languages, notebook cells."""
