"""Measures two ways of choosing the ten again without a second model, MaxSim and MMR, by the rules of ADR 27."""
