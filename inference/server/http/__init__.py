"""The HTTP interface of the core: one module per API that it is compatible with, and what these share."""
