"""The store: pages found by token prefix, moved between tiers, evicted, and saved."""
