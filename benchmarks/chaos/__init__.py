"""Kills processes of a campaign repeatedly, and counts what was lost: see `python -m benchmarks.chaos --help`.

processes   finds processes; only those with the mark of this program are touched
cluster     a real Ray cluster of several nodes on this machine
objective   the function that is evaluated; it records each execution in a file of its own
campaign    one campaign on the cluster, watched through its log
monkey      chooses what is killed, and when
accounting  compares log, records and kills: broken promises, repeated evaluations, recovery times
reporting   prints the tables
network     nodes in their own network namespaces, and a link that is cut
"""
