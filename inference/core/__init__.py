"""The core process: one model for this user's editors and other programs, behind a WebSocket and HTTP."""
