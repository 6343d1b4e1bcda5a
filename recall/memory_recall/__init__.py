"""Hybrid recall over a memory store in Postgres: lexical and dense legs fused inside the database."""
