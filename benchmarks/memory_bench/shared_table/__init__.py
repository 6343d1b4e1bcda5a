"""Measures the effect on other users of the table: how long their statements wait, and what their updates cost."""
