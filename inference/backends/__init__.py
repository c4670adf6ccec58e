"""The backends: the Model interface, and one implementation per kind of model and device."""
