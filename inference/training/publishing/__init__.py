"""From a finished run to a model folder: export, model card and release."""
