"""Trainings in steps: trials that report values before their end.

Everything here is pure and independent of a campaign's state, so that `Optimizer` decides with the
same classes.

* `curves`: the facts, as one frozen value: reported values, stopped trials, forecasts;
* `rungs`: asynchronous successive halving, the median rule, and pauses;
* `rule`: why a trial is stopped, and the step at which its worker ends it;
* `first`: the number and the length of the short first trainings;
* `starts`: the step at which trials pause first;
* `steps`: the steps that a budget of steps has counted;
* `end_of_budget`: the trials that the remaining budget is reserved for;
* `warnings`: reports that do not fit the settings.
"""
