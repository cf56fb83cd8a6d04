"""Trainings in steps: trials that report values before their end.

Everything here is pure and independent of a campaign's state, so `Optimizer` uses the same classes
for its decisions.

* `curves`: the facts as one frozen value: reported values, stopped trials, forecasts;
* `contest`: the comparison of trials with several objectives or constraints;
* `hopes`: the trials that may still improve the results, by their forecasts;
* `rungs`: asynchronous successive halving, the median rule, and pauses;
* `rule`: the causes for stopping a trial, and the step at which its worker ends it;
* `first`: the number and the length of the short first trainings;
* `starts`: the step of a trial's first pause;
* `steps`: the number of steps counted against a budget of steps;
* `end_of_budget`: the trials that the remaining budget is reserved for;
* `warnings`: reports that do not fit the settings.
"""
