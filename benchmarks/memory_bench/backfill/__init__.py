"""Measures the throughput of a backfill, beside an upper bound that is measured in the same run.

With a real embedder the bound is the embedder's own throughput. With an embedder that costs nothing the bound is a bare
`UPDATE ... FROM unnest` loop. Backfill and bound are measured alternately and their medians are compared, so that a
machine that slows down for a while slows both.
"""
