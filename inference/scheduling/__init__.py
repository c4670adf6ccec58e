"""The model thread: picks the next request, loads and unloads the model, and saves at rest."""
