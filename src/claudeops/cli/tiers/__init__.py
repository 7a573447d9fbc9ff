"""Commands on tiers and tools: what there is, who would take a text, and running one of them."""
