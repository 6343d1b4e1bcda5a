"""Measures how many recalls a second one and two instances of Postgres answer."""
