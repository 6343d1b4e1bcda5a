"""Model files for tests and measurements: with random weights, altered, or cut off after some layers."""
