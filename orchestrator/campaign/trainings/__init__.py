"""Trainings in steps: trials that report values before their end.

These are parts of the campaign's state. `campaign.stops` decides with them which trial is stopped.

* `curves`: the facts as one frozen value: reported values, stopped trials, forecasts;
* `contest`: the comparison of trials with several objectives or constraints;
* `hopes`: the trials that may still improve the results, by their forecasts;
* `rungs`: asynchronous successive halving, the median rule, and pauses;
* `first`: the number and the length of the short first trainings;
* `steps`: the number of steps counted against a budget of steps;
* `end_of_budget`: the trials that the remaining budget is reserved for.
"""
