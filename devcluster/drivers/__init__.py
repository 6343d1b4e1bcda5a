"""The three drivers that start clusters (kind, node, current), behind one interface."""
