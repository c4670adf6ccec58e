"""Who may connect to the core, and how: tokens and users, host names and origins, TLS, limits of connections."""
