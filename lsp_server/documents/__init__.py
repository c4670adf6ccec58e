"""Documents: their lines, positions, languages and lexical structure, from text alone."""
