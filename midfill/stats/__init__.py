"""The command `midfill stats`: the statistics on this machine, as a table, a page or data."""
