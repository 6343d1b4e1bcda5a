"""Measures the throughput of a backfill, beside an upper bound that is measured in the same run.

With a real embedder the upper bound is the embedder's own throughput. With an embedder that costs nothing the upper
bound is a bare `UPDATE ... FROM unnest` loop. Backfill and upper bound are measured alternately and their medians are
compared, so that a machine that slows down for a while affects both alike.
"""
