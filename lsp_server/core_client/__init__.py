"""The client of the core: finds, starts, watches and talks to cores."""
