"""What a migration decides about the vectors in a table: whether they stay, and which model is the active one."""
