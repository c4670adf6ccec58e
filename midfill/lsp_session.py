"""An editor without a screen: one language server process over stdio, and the documents open in it."""

from __future__ import annotations


