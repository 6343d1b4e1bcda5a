"""Named situations on the real operator: what its status says, and what GitOps tools make of it."""
