"""`python -m shunter.azureml script.py [arguments]`: run a script that imports azureml, with ours in its place."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from shunter.azureml._imports import in_use, install


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m shunter.azureml [-m MODULE | SCRIPT] [ARGUMENTS]", file=sys.stderr)
        raise SystemExit(0 if words else 2)
    install()
    print(in_use(), file=sys.stderr)
    if words[0] == "-m" and len(words) > 1:
        sys.argv = words[1:]
        sys.path.insert(0, "")
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    script = Path(words[0])
    if not script.is_file():
        raise SystemExit(f"There is no script {script}.")
    sys.argv = words
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
