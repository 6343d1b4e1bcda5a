"""Curation: finds memories that newer ones say again or replace, proposes what to do, and records what was applied."""
