"""Proposes which column of a table is used for what, and says what a person has to decide.

A column is proposed by its name, by its type, or because documents in it have a known key. Where several are equally
likely, none is proposed, and a question says so. That no row is sensitive is never proposed: it has to be said.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory_recall.schema.adoption.observations import NumberRange, TableObservation
from memory_recall.schema.adoption.purposes import known_names, plain, plain_groups
from memory_recall.schema.columns.names import EMBEDDING, ColumnNames, ColumnSource, Sources, used_column
from memory_recall.schema.columns.used import KEYS, TEXTS, USED_COLUMNS, Need, UsedColumn
from memory_recall.schema.table import MemoryTable

Given = Mapping[str, str | Sequence[str]]

NOT_FOUND = "no column was found for it"

_DOCUMENTS = ("jsonb", "json")
_RARE = 0.1  # of the share of the commonest key; rarer ones are not asked about
_WANTED_WIDTH = 20  # bytes; a column of shorter texts is not taken for the texts of memories by its type alone
# Types of the values of documents, as JSON names them, from which a column can be read.
_IN_DOCUMENTS = {
    "content": {"string"},
    "is_sensitive": {"boolean", "string"},
    "deleted_at": {"string"},
    "user_id": {"string", "number"},
    "category": {"string"},
    "tags": {"string"},
    "expanded_keywords": {"string"},
    "importance": {"number"},
    "created_at": {"string"},
    "updated_at": {"string"},
}
# Without one of these, a recall would find what it must not, so a column of an unusable type is a fault.
_NEVER_LEFT_OUT = {"id", "content", "is_sensitive", "deleted_at", "user_id"}
_ORDER = ("id", "search_vector", "content", "is_sensitive", "deleted_at", "user_id")  # then all others


@dataclass(frozen=True, slots=True)
class Choice:
    """What is used for a column, by our name for it, and why. Without sources that the table has, nothing is."""

    name: str
    sources: Sources
    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a person has to decide before the table is adopted: for which column, and with which option.

    `candidates` are equally likely; there is none where nothing says it.
    """

    name: str
    message: str
    remedy: str
    candidates: Sources = ()


@dataclass(frozen=True)
class Proposal:
    """What is used for each column, and what is undecided. There is a choice for each column without a question.

    `embedding` is the name of our column of vectors.
    """

    choices: tuple[Choice, ...]
    questions: tuple[Question, ...]
    embedding: str = EMBEDDING

    @property
    def columns(self) -> set[str]:
        """The columns that are used or asked about, by the user's names."""
        sources = [one.sources for one in self.choices] + [one.candidates for one in self.questions]
        return {source.column for found in sources for source in found}

    def names(self, *, with_candidates: bool = False) -> ColumnNames:
        """Return the names of the columns as `memory migrate` takes them.

        With `with_candidates`, the first candidate stands for what is undecided, so that everything else can be judged.
        """
        sources = {choice.name: choice.sources for choice in self.choices}
        if with_candidates:
            sources |= {question.name: question.candidates[:1] for question in self.questions}
        named = {name: found for name, found in sources.items() if found != (ColumnSource(name),)}
        return ColumnNames(named, embedding=self.embedding)


def propose(
    table: MemoryTable, seen: TableObservation, given: Given, *, all_public: bool = False, embedding: str = EMBEDDING
) -> Proposal:
    """Propose a source for each column that `given` does not name; `all_public` says that no row is sensitive.

    `given` has the sources as a person writes them, by our names; an empty text says that the column is not used.
    `embedding` is the name of our column of vectors where `given` has none.

    Raises:
        InvalidConfiguration: a name or a source that was given cannot be used.
    """
    names = ColumnNames.parse({EMBEDDING: embedding, **given}, all_public=all_public)
    return _Proposing(table, seen, names, frozenset(given), all_public).run()


def recorded(table: MemoryTable) -> Proposal:
    """Return the columns of a table that has been migrated, as they were recorded then."""
    return Proposal(
        tuple(
            Choice(used.name, table.names.of(used.name), "recorded by the first migration")
            for used in USED_COLUMNS
            if used.name in table.columns or not table.names.of(used.name)
        ),
        (),
        table.names.embedding,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    source: ColumnSource
    reason: str


class _Proposing:
    def __init__(
        self, table: MemoryTable, seen: TableObservation, given: ColumnNames, named: Collection[str], all_public: bool
    ) -> None:
        self._table, self._seen, self._given, self._all_public = table, seen, given, all_public
        self._named = named
        self._taken = {source for name in named for source in given.of(name)}
        self._choices = dict[str, Choice]()
        self._questions = dict[str, Question]()

    def run(self) -> Proposal:
        for name in [*_ORDER, *(used.name for used in USED_COLUMNS if used.name not in _ORDER)]:
            if name in self._named:
                self._choose(name, self._given.of(name), "as you named it" if self._given.of(name) else "as you said")
            elif name == "is_sensitive" and self._all_public:
                self._choose(name, (), "you said that no row is secret")
            else:
                self._propose(used_column(name))
        order = [used.name for used in USED_COLUMNS]
        return Proposal(
            tuple(self._choices[name] for name in order if name in self._choices),
            tuple(self._questions[name] for name in order if name in self._questions),
            self._given.embedding,
        )

    def _propose(self, used: UsedColumn) -> None:
        found = self._candidates(used)
        if len(found) == 1:
            self._choose(used.name, (found[0].source,), found[0].reason)
        elif found:
            self._add_question(used, found)
        else:
            self._without(used)

    def _choose(self, name: str, sources: Sources, reason: str) -> None:
        self._choices[name] = Choice(name, sources, reason)
        self._taken.update(sources)

    def _add_question(self, used: UsedColumn, found: Sequence[_Candidate]) -> None:
        sources = tuple(one.source for one in found)
        written = " and ".join([", ".join(map(str, sources[:-1])), str(sources[-1])])
        ways = [_option(used.name, str(source)) for source in sources]
        if used.name == "content":
            ways.append(" ".join(_option(used.name, str(source)) for source in sources) + " for all of them together")
        elif used.may_be_absent and used.name != "is_sensitive":
            ways.append(f"{_option(used.name, '')} for none")
        self._questions[used.name] = Question(
            used.name, f"{written} are equally likely for {used.name}.", f"Say which: {'; '.join(ways)}.", sources
        )

    def _without(self, used: UsedColumn) -> None:
        if used.name == "is_sensitive":
            self._questions[used.name] = Question(
                used.name,
                f"No column has a name that says which rows are secret.{self._unknown_booleans()}",
                f"Name the column that does ({_option(used.name, 'COLUMN')}); or say that no row is secret "
                f"(--no-sensitive); or add one: ALTER TABLE {self._table.qualified} ADD COLUMN is_sensitive "
                f"{used.adding};",
            )
        elif used.name == "search_vector":
            self._choose(used.name, (ColumnSource(used.name),), "there is no column of type tsvector")
        elif used.name in {"id", "content"}:
            self._choose(used.name, (ColumnSource(used.name),), "nothing else was found")
        else:
            # A name that the table does not have means the same as none, and need not be set.
            there = used.need is Need.ALWAYS or used.name in self._table.catalog
            sources = () if there else (ColumnSource(used.name),)
            self._choose(used.name, sources, self._unusable(used) or NOT_FOUND)

    def _unknown_booleans(self) -> str:
        """Return a sentence that lists the boolean columns whose names are not known, or "" if there are none."""
        known = known_names()
        marks = [str(source) for source in self._of_types(("boolean",)) if plain(source.column) not in known]
        return f" Of type boolean there are: {', '.join(marks)}." if marks else ""

    def _candidates(self, used: UsedColumn) -> list[_Candidate]:
        """Return what is likeliest for a column; several are equally likely."""
        if used.name == "id":
            return self._keys()
        columns, keys, unusable = list(self._by_name(used)), list(self._by_key(used)), list(self._by_name_alone(used))
        for likely in ((columns, keys), (unusable,)):
            for group in plain_groups(used.name):
                for candidates in likely:
                    if found := [one for name, one in candidates if name in group]:
                        return found
        if used.name == "search_vector":
            return [_Candidate(source, "its type") for source in self._of_types(used.types)]
        if used.name == "content":
            return self._texts()
        return []

    def _by_name(self, used: UsedColumn) -> Iterator[tuple[str, _Candidate]]:
        """Yield the columns of usable types with their plain names."""
        for source in self._of_types(used.types):
            if not _beyond(used, self._seen.ranges.get(source.column)):
                yield plain(source.column), _Candidate(source, "its name")

    def _by_name_alone(self, used: UsedColumn) -> Iterator[tuple[str, _Candidate]]:
        """Yield the columns of other types with their plain names, if a table without the column is not to be used."""
        if used.name in _NEVER_LEFT_OUT:
            for column, kind in self._table.catalog.items():
                if kind not in used.types and column != EMBEDDING:
                    yield plain(column), _Candidate(ColumnSource(column), "its name")

    def _by_key(self, used: UsedColumn) -> Iterator[tuple[str, _Candidate]]:
        """Yield the keys of documents with their plain names, none that is deeper or far rarer than another one."""
        wanted, names = _IN_DOCUMENTS.get(used.name, set()), frozenset[str]().union(*plain_groups(used.name))
        keys = [
            key
            for key in self._seen.document_keys
            if key.types and set(key.types) <= wanted and plain(key.path[-1]) in names
        ]
        depth = min((len(key.path) for key in keys), default=0)
        share = max((key.share for key in keys if len(key.path) == depth), default=0)
        for key in keys:
            source = ColumnSource(key.column, key.path)
            if len(key.path) == depth and key.share >= _RARE * share and source not in self._taken:
                yield plain(key.path[-1]), _Candidate(source, f"a key in {100 * key.share:.0f} % of the rows read")

    def _keys(self) -> list[_Candidate]:
        """Return the candidates for the key: the primary key, else columns named like an id, else every unique one."""
        usable = [source.column for source in self._of_types(KEYS)]
        if len(self._seen.primary_key) == 1 and self._seen.primary_key[0] in usable:
            return [_Candidate(ColumnSource(self._seen.primary_key[0]), "the primary key")]
        for group in plain_groups("id"):
            if found := [name for name in self._table.catalog if plain(name) in group]:
                return [_Candidate(ColumnSource(name), "its name") for name in found]
        unique = [name for name in self._seen.unique if name in usable]
        return [_Candidate(ColumnSource(name), "it is unique") for name in unique]

    def _texts(self) -> list[_Candidate]:
        """Return the columns that hold texts of some length, where no name says which one holds the memories."""
        return [
            _Candidate(source, "the only column of longer texts")
            for source in self._of_types(TEXTS)
            if self._seen.widths.get(source.column, 0) >= _WANTED_WIDTH and source.column not in self._seen.unique
        ]

    def _unusable(self, used: UsedColumn) -> str:
        """Return why a column that has the name is not used, or "" if there is none."""
        names = frozenset[str]().union(*plain_groups(used.name))
        for column, kind in self._table.catalog.items():
            if plain(column) not in names or ColumnSource(column) in self._taken:
                continue
            numbers = self._seen.ranges.get(column)
            if _beyond(used, numbers) and numbers is not None:
                return f"{column} has numbers from {numbers.least:g} to {numbers.greatest:g}, not from 0 to 1"
            if kind not in used.types and kind not in _DOCUMENTS:
                return f"{column} is {kind}, not {' or '.join(used.types)}"
        return ""

    def _of_types(self, types: Iterable[str]) -> list[ColumnSource]:
        wanted = set(types)
        found = [ColumnSource(name) for name, kind in self._table.catalog.items() if kind in wanted]
        return [source for source in found if source not in self._taken]


def _beyond(used: UsedColumn, numbers: NumberRange | None) -> bool:
    """Return whether numbers are no importance, which is from 0 to 1."""
    return used.name == "importance" and numbers is not None and not 0 <= numbers.least <= numbers.greatest <= 1


def _option(name: str, source: str) -> str:
    """Return the option that names a source, as a person types it in a shell."""
    return f"--content {shlex.quote(source)}" if name == "content" else f"--column {shlex.quote(f'{name}={source}')}"
