"""Finds or downloads checkpoints, checks them and reads what they are; imports no torch, but for their numbers."""
