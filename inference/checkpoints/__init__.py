"""Finds or downloads checkpoints, checks them and reads their architecture; imports no torch."""
