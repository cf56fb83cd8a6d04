"""The functional core: which arm next. Pure functions on frozen values; no I/O, clock, logging or global randomness."""
