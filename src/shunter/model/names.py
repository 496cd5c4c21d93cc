"""Which names people may give. Checked wherever a name enters."""

from __future__ import annotations

import re
import unicodedata

from shunter.errors import NameInvalid

RUN_ID = re.compile(r"[0-9a-f]{32}")
_COMPUTE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
LONGEST = 200


def check_title(kind: str, name: str) -> str:
    """The name of an experiment, a run or a workspace: any text on one line, blanks and unicode included."""
    if not isinstance(name, str) or not name.strip():
        raise NameInvalid(f"The name of {_a(kind)} is empty.", hint="Give it one, for example 'my experiment'.")
    if len(name) > LONGEST:
        raise NameInvalid(f"The name of {_a(kind)} has {len(name)} characters.", hint=f"{LONGEST} are allowed.")
    bad = sorted({c for c in name if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn")})
    if bad:
        raise NameInvalid(f"The name of {_a(kind)}, {name!r}, has characters that cannot be shown: {bad!r}.")
    if "/" in name or "\\" in name or name.strip(" .") == "" or name != name.strip():
        raise NameInvalid(
            f"The name of {_a(kind)}, {name!r}, cannot be used.",
            hint="It may not contain / or \\, consist of dots, or begin or end with a blank.",
        )
    return name


def check_compute_name(name: str) -> str:
    """The name of a compute target: it is typed in commands and becomes part of file names."""
    if not isinstance(name, str) or not _COMPUTE.fullmatch(name):
        raise NameInvalid(
            f"{name!r} cannot be the name of a compute target.",
            hint="Take letters, digits, '-', '_' and '.', beginning with a letter, at most 64: for example 'cpu-cluster'.",
        )
    return name


def advice_on_compute_name(name: str) -> str:
    """What to say of a name that is fine here and not everywhere: elsewhere it must have 2 to 16 characters. Empty: nothing.

    >>> advice_on_compute_name("cpu-cluster")
    ''
    """
    if 2 <= len(name) <= 16:
        return ""
    return f"{name!r} has {len(name)} character{'s' if len(name) > 1 else ''}; Azure ML takes 2 to 16. Here it is fine."


def check_run_id(run_id: str) -> str:
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        raise NameInvalid(f"{run_id!r} is not a run id.", hint="A run id is 32 hexadecimal digits.")
    return run_id


def _a(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
