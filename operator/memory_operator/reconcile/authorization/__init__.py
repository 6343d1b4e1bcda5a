"""Whether an object may be worked on at all: what its author may choose, who consents, and whose the database is."""
