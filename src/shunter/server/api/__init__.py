"""One router for each noun: parse, authorise, one service call."""
