"""All SQL lives here: connections, catalog facts, migrations' runner, the pending queue and the recall statements."""
