"""The columns of the user's table: which we use, of which types they may be, and how their values are read."""
