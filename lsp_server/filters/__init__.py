"""Post-processing of completions: small pure filters, one per file, in the order that `order` gives."""
