"""Pure decisions: from a specification and observed facts to writes and a status."""
