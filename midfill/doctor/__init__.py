"""`midfill doctor`: what is installed and running, and what is wrong, in words that a user can act on."""
