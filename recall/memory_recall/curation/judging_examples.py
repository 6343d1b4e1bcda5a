"""What a language model is told before it judges a pair of memories: the question, and how it was answered elsewhere.

The examples are invented, and belong to nobody. Those of `SHOWN` stand before every question as turns of the same
conversation. Those of `TRIAL` are asked about before any memory is sent, to see whether the model is fit for it.
"""

from dataclasses import dataclass

YES, NO = "Yes", "No"

INSTRUCTION = (
    "You compare two notes that one person wrote at different times. Say whether the newer note makes the older one "
    "unnecessary: because it states the same fact again, in other words or with more detail, or because it says that "
    "the fact has changed. Notes about two different things, events, days, or measurements are both needed, even if "
    "they are about the same topic. Answer Yes if the newer note replaces or repeats the older one, and No if both are "
    "needed."
)


@dataclass(frozen=True, slots=True)
class Note:
    """A memory as the model sees it: the day it was written on (ISO 8601), and its text."""

    day: str
    text: str


@dataclass(frozen=True, slots=True)
class Example:
    """Two notes, and whether the newer one makes the older one unnecessary."""

    older: Note
    newer: Note
    restates: bool

    @property
    def turn(self) -> tuple[str, str]:
        """The question about the two notes, and its answer."""
        return question(self.older, self.newer), YES if self.restates else NO


def question(older: Note, newer: Note) -> str:
    """Return what the model is shown of two notes."""
    return f"OLDER NOTE ({older.day}): {older.text}\n\nNEWER NOTE ({newer.day}): {newer.text}"


def _restated(older_day: str, older: str, newer_day: str, newer: str) -> Example:
    return Example(Note(older_day, older), Note(newer_day, newer), restates=True)


def _other(older_day: str, older: str, newer_day: str, newer: str) -> Example:
    return Example(Note(older_day, older), Note(newer_day, newer), restates=False)


SHOWN = (
    _restated(
        "2024-01-08",
        "The cleaner comes on Thursdays at ten.",
        "2024-05-06",
        "From now on the cleaner comes on Fridays, still at ten.",
    ),
    _other("2024-02-11", "Water meter reading: 412.", "2024-03-11", "Water meter reading: 427."),
    _restated(
        "2024-03-17",
        "Tomato seedlings need bigger pots as soon as they have four leaves.",
        "2025-03-10",
        "Repot the tomato seedlings once the fourth leaf is there.",
    ),
    _other(
        "2024-07-02",
        "Holiday in Denmark is booked, 3 to 17 August, house number 12.",
        "2024-08-05",
        "Arrived in Denmark, the house is small but right behind the dune.",
    ),
    _restated(
        "2024-09-09", "Ben is allergic to hazelnuts.", "2024-12-01", "Remember when baking: Ben cannot have hazelnuts."
    ),
    _other(
        "2024-10-01",
        "Car insurance costs 540 euros a year.",
        "2024-10-03",
        "Liability insurance costs 62 euros a year.",
    ),
    _restated(
        "2024-04-22",
        "Choir rehearsal is on Tuesdays in the parish hall.",
        "2024-10-21",
        "Choir now rehearses in the school gym, because the parish hall is being rebuilt.",
    ),
    _other(
        "2024-05-30",
        "Tried the new lentil soup recipe, too much cumin.",
        "2024-06-15",
        "Tried the pumpkin soup recipe, everybody liked it.",
    ),
    _other(
        "2024-02-14",
        "The heating is serviced by Krause, every February.",
        "2025-02-12",
        "Krause was here for the heating service, the pump was loud.",
    ),
    _restated(
        "2024-01-31",
        "We decided to save for a cargo bike.",
        "2024-06-30",
        "The cargo bike is off the table; we will buy a second hand car instead.",
    ),
    _restated(
        "2024-03-05",
        "Wifi password for guests: it is on the card in the hall.",
        "2024-11-05",
        "Guests find the wifi password on the card that hangs in the hall.",
    ),
    _other(
        "2024-08-18",
        "Nora said she will move to Leipzig next spring.",
        "2024-08-20",
        "Nora lent me the drill, bring it back on Saturday.",
    ),
    _restated(
        "2024-06-01",
        "Backup runs every night at two.",
        "2024-09-15",
        "Backups do not run nightly any more, only on Sundays.",
    ),
    _other(
        "2024-05-02",
        "Meeting with the landlord about the balcony.",
        "2024-05-28",
        "Second meeting with the landlord, this time about the cellar.",
    ),
    _restated(
        "2024-07-20",
        "Grandpa takes 50 mg of metoprolol in the morning.",
        "2024-09-28",
        "The doctor raised Grandpa's metoprolol to 100 mg.",
    ),
    _other("2024-11-11", "Shoe size of Emil: 31.", "2024-11-12", "Jacket size of Emil: 128."),
)
"""Sixteen examples. With another choice of them the same model judges much better or worse (ADR 34)."""

TRIAL = (
    _restated(
        "2024-03-04",
        "The gutter on the north side is blocked with leaves.",
        "2024-03-09",
        "Cleared the gutter on the north side, water runs off again.",
    ),
    _restated(
        "2024-01-19",
        "Piano lessons for Ida are 32 euros an hour.",
        "2024-09-03",
        "The piano teacher raised her price, Ida's lesson is 36 euros from now on.",
    ),
    _restated(
        "2024-05-14",
        "Pasta dough: 100 g flour and one egg for each person, rest it for half an hour.",
        "2024-11-23",
        "For pasta dough take one egg and 100 g flour a head, and let it rest thirty minutes.",
    ),
    _restated(
        "2024-02-27",
        "The printer in the study only works over the cable.",
        "2024-06-10",
        "Reminder for guests who want to print: study printer needs the cable, the wireless part is broken.",
    ),
    _restated(
        "2024-04-02",
        "Aunt Vera's birthday is on the 14th of May.",
        "2025-04-20",
        "Do not forget: Vera turns seventy on 14 May.",
    ),
    _restated(
        "2024-07-07",
        "We water the balcony plants in the evening.",
        "2024-08-15",
        "Changed the watering to early mornings, the evenings brought snails.",
    ),
    _restated("2024-09-30", "My locker at the pool is number 88.", "2024-10-12", "Pool locker: 88, second row."),
    _restated(
        "2024-10-25",
        "I want to read more history this winter.",
        "2024-12-30",
        "Given up on the history books, I am reading crime novels again.",
    ),
    _restated(
        "2024-06-17",
        "Car tyres: 2.4 bar in front, 2.6 bar in the back.",
        "2024-11-02",
        "Tyre pressure is 2.6 in the back and 2.4 in front.",
    ),
    _restated(
        "2024-01-05",
        "The allotment meeting is on the first Sunday of each month.",
        "2024-03-01",
        "Allotment club meets on first Saturdays now.",
    ),
    _restated(
        "2024-08-09",
        "Tim cannot sleep without the blue blanket.",
        "2024-09-21",
        "Pack the blue blanket for the trip, Tim does not fall asleep without it.",
    ),
    _restated(
        "2024-02-18",
        "The keyboard shortcut for the emoji list is control and full stop.",
        "2024-05-05",
        "Emoji list opens with ctrl and dot.",
    ),
    _other(
        "2024-03-12",
        "Paid the plumber 210 euros for the bathroom tap.",
        "2024-03-28",
        "Paid the electrician 180 euros for the hall lamp.",
    ),
    _other("2024-04-15", "Slept seven hours, resting pulse 58.", "2024-04-16", "Slept six hours, resting pulse 61."),
    _other(
        "2024-05-21",
        "The new neighbour on the left is called Petra, she has two cats.",
        "2024-06-03",
        "Petra from next door asked whether we can feed her cats in July.",
    ),
    _other(
        "2024-06-26",
        "Ordered the bookshelf for the living room, oak, 180 cm.",
        "2024-07-11",
        "The bookshelf arrived with a scratch on one side.",
    ),
    _other(
        "2024-09-12",
        "Parents' evening for class 3b: the trip goes to the zoo.",
        "2024-10-17",
        "Parents' evening for class 3b: new seating order and a recorder course.",
    ),
    _other(
        "2024-11-07",
        "The soup at the canteen was too salty today.",
        "2024-11-14",
        "The fish at the canteen was excellent today.",
    ),
    _other(
        "2024-01-22", "Learned to make knots: the bowline.", "2024-01-29", "Learned to make knots: the clove hitch."
    ),
    _other(
        "2024-07-30",
        "Flight to Lisbon is booked for 2 October.",
        "2024-08-02",
        "Booked the hotel in Lisbon, three nights near the river.",
    ),
    _other(
        "2024-08-24",
        "Grandma told how she met Grandpa at a dance in 1956.",
        "2024-09-01",
        "Grandma told how the house was built after the flood.",
    ),
    _other(
        "2024-10-04",
        "The washing machine makes a grinding noise when it spins.",
        "2024-10-06",
        "The dishwasher leaves white stains on the glasses.",
    ),
    _other(
        "2024-12-02",
        "Idea for a present for Jo: a head torch.",
        "2024-12-20",
        "Wrapped the presents for the children, Jo's is still missing.",
    ),
    _other(
        "2024-02-06",
        "Backed up the photos of 2023 to the black disk.",
        "2025-02-08",
        "Backed up the photos of 2024 to the black disk.",
    ),
)
"""Twenty-four examples, of each kind twelve."""
