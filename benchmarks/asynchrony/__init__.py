"""Asynchronous BBKB against its rivals in virtual time: regret against time, makespan and utilisation."""
