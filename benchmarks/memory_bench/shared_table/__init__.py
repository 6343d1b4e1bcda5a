"""The effect on other users of the table: how long their statements wait, and what the index costs their updates."""
