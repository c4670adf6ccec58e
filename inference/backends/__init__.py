"""The models: one interface, and an implementation per kind of model and device."""
