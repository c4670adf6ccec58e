"""Turns a finished run into what is published: the model folder, and weights of fewer bits with their losses."""
