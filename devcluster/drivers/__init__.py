"""The three ways to a cluster, behind one interface."""
