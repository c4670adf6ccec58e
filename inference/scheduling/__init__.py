"""The model thread: which request is next, loading and unloading, and saving at rest."""
