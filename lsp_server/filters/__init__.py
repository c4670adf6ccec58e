"""Post-processing of completions: small pure filters, in the order that `order` gives."""
