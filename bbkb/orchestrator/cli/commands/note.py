"""`bbkb note`: adds notes or tags to a run or to one of its trials, or prints them."""

from typing import Annotated

import typer

from bbkb.orchestrator.cli.arguments import RunFolder, Tags
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.store.notes import Note, new_note
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.wording import moment


def note(
    folder: RunFolder,
    text: Annotated[str, typer.Argument(help="The note; without it and without --tag, all notes are printed.")] = "",
    trial: Annotated[
        int | None, typer.Option("--trial", min=0, help="The trial that it describes; default: the whole run.")
    ] = None,
    tag: Tags = None,
) -> None:
    """Add a note or tags to a run or to one of its trials, also while it runs; without either,
    print all."""
    run = open_run(folder)
    console = SafeConsole()
    history = read_history(run)
    if trial is not None and trial >= len(history.trials):
        raise UserError(f"--trial must be one of the {len(history.trials)} trials of {folder}, from 0, got {trial}")
    if not text and not tag:
        notes = [note for note in history.notes if trial is None or note.trial == trial]
        for note in notes:
            say(console, _line(note))
        if not notes:
            say(console, f"{folder} has no notes")
        return
    new = new_note(text, tag or (), trial)
    with run.store() as store:
        store.add_note(run.name, new)
    say(console, _line(new))


def _line(note: Note) -> str:
    where = "" if note.trial is None else f"trial {note.trial}: "
    tags = "".join(f" [{tag}]" for tag in note.tags)
    return f"{moment(note.time)}{tags} {where}{note.text}".rstrip()
