"""Kill processes of a campaign on a real Ray cluster, and count lost and repeated evaluations.

`python -m benchmarks.chaos --help` lists the options. Only processes with the mark of this program
can be killed.
"""
