"""Rules over generated artifacts: each knows a trap that somebody fell into. No cluster is needed to ask them."""
