"""How much context of other files pays: lines of published packages that use a symbol of another file."""
