"""Creates the tables of a local SQLite store, with the schema that the memory API uses."""

import sqlite3


def create_schema(connection: sqlite3.Connection) -> None:
    """Create the table `memories`, its FTS5 index and the triggers that fill the index, unless they exist."""
    connection.executescript(
        """
        CREATE TABLE IF NOT EXISTS memories (
            id INTEGER PRIMARY KEY, content TEXT NOT NULL, category TEXT DEFAULT 'facts', tags TEXT DEFAULT '',
            expanded_keywords TEXT DEFAULT '', importance REAL DEFAULT 0.5, is_sensitive INTEGER DEFAULT 0,
            user_id TEXT, deleted_at TEXT, created_at TEXT, updated_at TEXT
        );
        CREATE VIRTUAL TABLE IF NOT EXISTS memories_fts USING fts5(
            content, category, tags, expanded_keywords, content='memories', content_rowid='id'
        );
        CREATE TRIGGER IF NOT EXISTS memories_fts_insert AFTER INSERT ON memories BEGIN
            INSERT INTO memories_fts (rowid, content, category, tags, expanded_keywords)
            VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
        END;
        CREATE TRIGGER IF NOT EXISTS memories_fts_delete AFTER DELETE ON memories BEGIN
            INSERT INTO memories_fts (memories_fts, rowid, content, category, tags, expanded_keywords)
            VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
        END;
        CREATE TRIGGER IF NOT EXISTS memories_fts_update AFTER UPDATE ON memories BEGIN
            INSERT INTO memories_fts (memories_fts, rowid, content, category, tags, expanded_keywords)
            VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
            INSERT INTO memories_fts (rowid, content, category, tags, expanded_keywords)
            VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
        END;
        """
    )
