"""The operator on a real cluster: what it refuses, what it says, what faults it survives, and how it scales."""
