"""Reads which text search configuration made the words of a table, so that queries are parsed by the same one.

Words that two configurations have made of one text need not be equal: `english` makes `boiler` of "boilers", `simple`
leaves it as it is. The definition of the search column names its configuration, which is that of the expression of a
generated column, or an argument of Postgres's own trigger `tsvector_update_trigger`. A definition that names none, such
as one with a function of the user's, or several, does not decide. Then the configuration is the one that was chosen for
the table, or else `simple`, which every database has.
"""

from memory_recall.errors import InvalidConfiguration

WITHOUT_LANGUAGE = "simple"

# Postgres's own collation of Unicode is there from version 17 on, and ICU's wherever Postgres is built with it.
READ_CASE_FOLDING = """CASE WHEN current_setting('server_encoding') = 'UTF8' THEN coalesce((
         SELECT format('%I.%I', 'pg_catalog', l.collname) FROM pg_collation l
           JOIN unnest(ARRAY['pg_c_utf8', 'und-x-icu', 'C.utf8', 'en_US.utf8']) WITH ORDINALITY AS fit(name, place)
             ON fit.name = l.collname
          WHERE l.collnamespace = 'pg_catalog'::regnamespace AND l.collencoding IN (-1, 6)
          ORDER BY fit.place LIMIT 1), '') END"""
"""SQL for the collation that folds the case of every script, quoted; "" if there is none, NULL without Unicode."""

# A Cyrillic letter is made from its number, since a literal would be refused by databases of other encodings.
READ_FOLDS_CASE = """CASE WHEN current_setting('server_encoding') = 'UTF8'
         THEN lower(chr(1046 + 0 * d.encoding)) = chr(1078 + 0 * d.encoding) ELSE true END"""
"""SQL for whether a database's locale knows the small letters of every script, where `d` is its row of pg_database."""

KEPT_CASE = (
    "The locale knows no small letters outside of ASCII, so a search column that is generated, or that another program "
    "keeps, has words with a capital letter apart from the same words without; memory_search_vector, ours, does not."
)
KEPT_CASE_REMEDY = (
    "To have ours, say at the first migration that search_vector is not used (an empty text in MEMORY_COLUMNS, "
    "in a cluster in spec.database.columns); what an earlier one added, its vectors too, is removed with memory "
    "migrate --to base --yes."
)

# A name without a schema is that of the first configuration of this name in the schemas of the search path.
_UNQUALIFIED = """quote_ident(t.cfgname) = {chosen} AND s.nspname = (
            SELECT p.schema FROM jsonb_array_elements_text({path}) WITH ORDINALITY p(schema, place)
              JOIN pg_namespace n ON n.nspname = p.schema
              JOIN pg_ts_config v ON v.cfgnamespace = n.oid AND v.cfgname = t.cfgname
             ORDER BY place LIMIT 1)"""
# Names of configurations are compared with those that exist and are not cast, since a cast fails for any other name. In
# the arguments of a trigger, which Postgres separates by zero bytes, the configuration must have its schema.
_NAMED = """
SELECT t.oid FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum,
       regexp_matches(pg_get_expr(d.adbin, d.adrelid), '''((?:[^'']|'''')+)''::regconfig', 'g') found
  JOIN pg_ts_config t ON t.oid::regconfig::text = replace(found[1], '''''', '''')
 WHERE d.adrelid = c.oid AND a.attname = {column} AND a.attgenerated <> ''
 UNION
SELECT t.oid FROM pg_trigger g,
       string_to_array(encode(g.tgargs, 'escape'), E'\\\\000') argument,
       pg_ts_config t JOIN pg_namespace s ON s.oid = t.cfgnamespace
 WHERE g.tgrelid = c.oid AND g.tgfoid = 'pg_catalog.tsvector_update_trigger'::regproc AND argument[1] = {column}
   AND format('%I.%I', s.nspname, t.cfgname) IN (argument[2], lower(argument[2]))"""
_WRITTEN = """CASE s.nspname WHEN 'pg_catalog' THEN quote_ident(t.cfgname)
                                ELSE format('%I.%I', s.nspname, t.cfgname) END"""


def read_configurations(column: str, chosen: str, path: str) -> str:
    """Return a select list of `words_of_column` and `words_as_chosen`, to stand where `c` is the row of pg_class.

    Both are names of configurations, quoted and with a schema where it needs one, and NULL if there is none.
    `words_of_column` is the only one that the definition of the search column names, and `words_as_chosen` is the one
    of the name that was chosen. `column` and `chosen` are SQL for the names of the column and of the chosen one, and
    `path` is SQL for a jsonb array of the schemas of the search path.
    """
    unqualified = _UNQUALIFIED.format(chosen=chosen, path=path)
    named, exists = _NAMED.format(column=column), "FROM pg_ts_config t JOIN pg_namespace s ON s.oid = t.cfgnamespace"
    return f"""
       (SELECT CASE count(*) WHEN 1 THEN min({_WRITTEN}) END
          {exists} WHERE t.oid IN ({named})) AS words_of_column,
       (SELECT min({_WRITTEN}) {exists}
         WHERE {unqualified} OR format('%I.%I', s.nspname, t.cfgname) = {chosen})
           AS words_as_chosen"""


def configuration_of(named: str | None, chosen: str | None, found: str | None) -> str:
    """Return the configuration of a table: the one that its definition names, or the chosen one, or `simple`.

    `found` is the configuration that exists under the name `chosen`, or None.

    Raises:
        InvalidConfiguration: a configuration was chosen that does not exist in this database.
    """
    if chosen is not None and found is None:
        raise InvalidConfiguration(
            f"There is no text search configuration {chosen} in this database.",
            "Choose one of those that \\dF lists in psql, such as simple, with its schema if it is in none of the"
            " search_path.",
        )
    return named or found or WITHOUT_LANGUAGE
