"""The paged store: finds pages by token prefix, moves them between tiers, evicts and saves them."""
