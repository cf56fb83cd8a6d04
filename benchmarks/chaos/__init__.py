"""Kill processes of a campaign repeatedly, and count lost and repeated evaluations.

`python -m benchmarks.chaos --help` lists the options.

processes   finds processes; only those with the mark of this program can be killed
cluster     a real Ray cluster of several nodes on this machine
objective   the function that is evaluated; it records each execution in its own file
campaign    one campaign on the cluster, watched through its log
monkey      chooses which processes are killed
accounting  compares log, records and kills: broken promises, repeated evaluations, recovery times
reporting   prints the tables
network     nodes in their own network namespaces, and links that are cut
"""
