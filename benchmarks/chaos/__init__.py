"""Kills what a campaign runs on, again and again, and counts what was lost: see `python -m benchmarks.chaos --help`.

processes   only what carries the mark of this harness is ever touched
cluster     a real Ray cluster of several nodes on this machine
objective   what is evaluated; notes each execution beside the log
campaign    one campaign on the cluster, watched through its log
monkey      what is killed, and when
accounting  log, notes and kills together: what was promised, what was repeated, how long recovery took
reporting   the table
network     nodes in network namespaces of their own, and a link that is cut
"""
