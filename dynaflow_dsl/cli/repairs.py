"""What to do about a module that is not current, by who is asked to write it."""

from __future__ import annotations

from dynaflow_dsl.cli.staleness import State, WaysOut

# Of a module that only a program makes, which compiles its model with torch.compile.
BY_PROGRAM: WaysOut = {
    State.MISSING: ('leave out the option "write" of its backend to have it written',),
    State.STALE: (
        'run the program with the option "write": "always" of its backend to have it '
        "written again",
    ),
    State.EDITED: (
        "delete the module and its map to have them written again; the edit is lost",
    ),
    State.NO_MAP: (
        "delete the module to have both written again; edits of it are lost",
    ),
    State.FOREIGN: ('choose another place with the option "module" of the backend',),
    State.OF_ANOTHER: (
        'choose another place with the option "module" of the backend',
        "or delete the module and its map, if nothing runs it any more",
    ),
}


def by_command(repair: str) -> WaysOut:
    """Of a module that a command line makes current."""
    run = (f"run `{repair}`",)
    return {
        State.MISSING: run,
        State.STALE: run,
        State.NO_MAP: run,
        State.EDITED: (f"run `{repair}` to write the module again; the edit is lost",),
        State.FOREIGN: ("choose another folder with -o, or move the file away",),
        State.OF_ANOTHER: (
            "choose another folder with -o, or a name of its own for the schedule",
            "or delete the module and its map, if nothing runs it any more",
        ),
    }


def by_call(path: str, *, write: bool) -> WaysOut:
    """Of a module that `schedule(model, path)` makes, and perhaps writes now."""
    run = f'run `schedule(model, "{path}", write=True)`'
    delete = "delete the module and its map to have both written again"
    kept = (delete,) if write else (f"{delete}: {run} then",)
    return {
        State.MISSING: (run,),
        # Beside what keeps it from being written, it is only a reason more.
        State.STALE: () if write else (run,),
        State.EDITED: kept,
        State.NO_MAP: kept,
        State.FOREIGN: (
            'choose another folder with folder="...", or move the file away',
        ),
        State.OF_ANOTHER: (
            'choose another folder with folder="..."',
            "or delete the module and its map, if nothing runs it any more",
        ),
    }
