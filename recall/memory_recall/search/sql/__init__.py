"""The SQL statements of a recall: lexical leg, dense leg, fusion and filters."""
