"""What studies of a change to recall share: sets with arrays, gains, the choice over sets, significance."""
