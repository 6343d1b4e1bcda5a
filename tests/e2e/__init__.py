"""A package, so that pytest ends the cluster of these tests after the last of them."""
