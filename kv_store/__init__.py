"""The prefix cache: an index of token prefixes over pages of KV, with budgets, eviction and tiers."""
