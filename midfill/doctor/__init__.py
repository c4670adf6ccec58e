"""`midfill doctor`: checks the installation, the model and the cores, and reports problems with their remedies."""
