"""The three drivers of clusters, behind one interface."""
