"""Labels questions in a terminal, where each answer is one line of input."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memory_recall.contrib.labelling.labeller import GRADES, Labeller, Screen, Shown
from memory_recall.errors import InvalidInput

_JUDGING = ", ".join(f"{grade} {meaning}" for grade, meaning in sorted(GRADES.items()))
_HELP = f"{_JUDGING}; u undo, x leave this question out, q end."
_WRITING_HELP = "Write the question; an empty line writes none for this memory, u undoes, q ends."
Read = Callable[[], str]
Show = Callable[[str], None]


async def label_in_terminal(labeller: Labeller, *, read: Read, show: Show) -> None:
    """Show tasks and take answers until everything is done, or until `q` or the end of the input.

    `read` returns a line with its line break, or an empty text at the end of the input. `show` prints a text.

    Raises:
        MemoryIndexError: the database, the embedder or the file fails.
        KeyboardInterrupt: the person has pressed Ctrl-C.
    """
    show(f"{_HELP}\n")
    while (screen := await labeller.screen()).task is not None:
        for line in _lines(screen, screen.task):
            show(line)
        with _interruptible():
            given = read()
        if given == "" or given.strip() == "q":
            return
        try:
            await _take(labeller, screen.task, given.strip())
        except InvalidInput as error:
            show(f"{error}\n")
    show("Everything is judged.")


def _lines(screen: Screen, task: Shown) -> list[str]:
    progress, memory = screen.progress, task.memory
    about = " · ".join(one for one in (memory.created, memory.category, memory.tags) if one)
    shown = [f"  {memory.content}", *([f"  ({about})"] if about else [])]
    if task.question is None:
        head = f"Memory {progress.written + 1} of {progress.to_write}, for a question of the kind {task.stratum}:"
        return ["", head, "", *shown, "", _WRITING_HELP]
    head = (
        f"Question {progress.questions + 1} of {progress.to_judge}, "
        f"memory {progress.memories + 1} of {progress.pooled}: {task.question}"
    )
    return ["", head, "", *shown, "", "0 to 3, u, x or q:"]


async def _take(labeller: Labeller, task: Shown, given: str) -> None:
    if given == "u":
        await labeller.undo()
    elif task.question is None:
        await (labeller.write(task.id, given) if given else labeller.leave_out(task.id))
    elif given == "x":
        await labeller.leave_out(task.id)
    elif given.isdecimal() and len(given) == 1:
        await labeller.grade(task.id, int(given))
    else:
        raise InvalidInput("This is no answer.", _HELP)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the block, which waits for a line.

    asyncio's own handler would cancel a task that cannot notice it before the line has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
