"""Curation: how many of the restatements of examples/homelab `memory curate` finds, and what a recall makes of them."""
