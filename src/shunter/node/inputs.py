"""placeholder"""
from __future__ import annotations
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict
def bring(folder, job, patience, canceled):
    # type: (str, Dict[str, Any], Callable[[int], float], Callable[[], bool]) -> Dict[str, str]
    return {}
