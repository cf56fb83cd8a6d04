"""Asynchronous BBKB compared with other methods in virtual time: regret against time, makespan and
utilisation."""
