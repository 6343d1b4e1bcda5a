"""What is found out about a table before it is adopted, and what a migration decides about vectors that it has."""
