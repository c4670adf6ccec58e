"""What is resident: a token-prefix index over pages of KV, with budgets, eviction and tiers."""
